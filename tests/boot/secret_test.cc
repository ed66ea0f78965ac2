// Which ranks may join at NCCL_COMM_ID: those that have the secret text, or, on loopback, those of the same user.
#include "src/boot/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/param.h"
#include "src/base/service_fd.h"
#include "src/boot/boot.h"
#include "src/boot/unique_id.h"
#include "tests/boot/meeting.h"
#include "tests/harness/folder.h"
#include "tests/harness/restrict.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::Folder;
using harness::RankContext;

constexpr uid_t kNobody = 65534;
constexpr const char* kSomewhere = "10.1.2.3:5000";  // not loopback
constexpr const char* kHere = "127.0.0.1:5000";

bool Mentions(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string_view::npos;
}

// Parameters are read once per process, so each environment gets its own process.
void InProcesses(int processes, std::vector<std::pair<std::string, std::string>> environment,
                 const std::function<void(RankContext&)>& body) {
  harness::RunOptions options;
  options.environment = std::move(environment);
  harness::RunRanks(harness::Processes(processes), body, options);
}

Result<UniqueId> IdWith(const std::string& secret, const std::string& file) {
  setenv("AXCCL_SECRET", secret.c_str(), 1);
  setenv("AXCCL_SECRET_FILE", file.c_str(), 1);
  param::Reset();
  return IdFromText(kSomewhere);
}

void WriteFile(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

IdFields FieldsOf(const Result<UniqueId>& id) {
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? Unpack(id.value()).value() : IdFields();
}

TEST(SecretTest, OfTheEnvironmentAndOfFilesAgree) {
  const Folder folder;
  InProcesses(1, {}, [&](RankContext&) {
    const std::string path = folder.Path("secret");
    WriteFile(path, "open sesame, please\n", 0600);
    const IdFields direct = FieldsOf(IdWith("open sesame, please", ""));
    const IdFields from_file = FieldsOf(IdWith("", path));
    const IdFields other = FieldsOf(IdWith("open barley, please", ""));
    EXPECT_EQ(direct.flags, kFromEnvironment);
    EXPECT_EQ(direct.id, from_file.id);
    EXPECT_EQ(direct.secret, from_file.secret);
    EXPECT_NE(direct.id, other.id);
    EXPECT_NE(direct.secret, other.secret);
    ASSERT_EQ(unlink(path.c_str()), 0);
    const Status gone = IdWith("", path).status();
    EXPECT_EQ(gone.code(), Code::kSystemError);
    EXPECT_TRUE(Mentions(gone, path)) << gone.message();
  });
}

TEST(SecretTest, ShortOnesAreRefused) {
  const Folder folder;
  InProcesses(1, {}, [&](RankContext&) {
    const std::string path = folder.Path("secret");
    for (const std::string text : {"", "x", "fifteen bytes.."}) {
      WriteFile(path, text + "\n", 0600);
      std::vector<std::pair<Status, std::string>> refusals{{IdWith("", path).status(), "AXCCL_SECRET_FILE=" + path}};
      if (!text.empty()) refusals.emplace_back(IdWith(text, "").status(), "AXCCL_SECRET");
      for (const auto& [status, from] : refusals) {
        EXPECT_EQ(status.code(), Code::kInvalidUsage) << text;
        EXPECT_TRUE(Mentions(status, from + ": " + std::to_string(text.size()) + " bytes")) << status.message();
        EXPECT_TRUE(Mentions(status, "at least 16 are needed")) << status.message();
      }
    }
    EXPECT_TRUE(IdWith("sixteen bytes...", "").ok());
  });
}

// Same rule as ssh's for private keys (ssh(1), FILES: "These files ... should be readable by the user but not
// accessible by others. ssh will simply ignore a private key file if it is accessible by others").
TEST(SecretTest, FilesThatOthersMayReadAreRefused) {
  const Folder folder;
  InProcesses(1, {}, [&](RankContext&) {
    const std::string path = folder.Path("secret");
    for (const mode_t mode : {0644, 0640, 0604, 0620, 0602}) {
      WriteFile(path, "open sesame, please\n", mode);
      const Status status = IdWith("", path).status();
      EXPECT_EQ(status.code(), Code::kInvalidUsage) << std::oct << mode;
      EXPECT_TRUE(Mentions(status, "chmod 600")) << status.message();
    }
    WriteFile(path, "open sesame, please\n", 0400);
    EXPECT_TRUE(IdWith("", path).ok());
  });
}

// As a shell passes what a program prints: AXCCL_SECRET_FILE=<(program). Each communicator of the process needs it.
TEST(SecretTest, PipesAreReadToTheEndAndOnce) {
  const Folder folder;
  InProcesses(1, {}, [&](RankContext&) {
    const std::string path = folder.Path("pipe");
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] {
      const service::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
      EXPECT_EQ(write(fd.get(), "open sesame, very", 17), 17);
      int unread = 1;
      while (ioctl(fd.get(), FIONREAD, &unread) == 0 && unread != 0) usleep(1000);
      EXPECT_EQ(write(fd.get(), " wide\n", 6), 6);
    });
    const IdFields first = FieldsOf(IdWith("", path));
    writer.join();
    ASSERT_EQ(unlink(path.c_str()), 0);
    EXPECT_EQ(FieldsOf(IdWith("", path)).secret, first.secret);
    EXPECT_EQ(FieldsOf(IdWith("open sesame, very wide", "")).secret, first.secret);
  });
}

TEST(SecretTest, FilesThatAreTooLongAreRefused) {
  const Folder folder;
  InProcesses(1, {}, [&](RankContext&) {
    const std::string path = folder.Path("secret");
    WriteFile(path, std::string(4096, 'a'), 0600);
    EXPECT_TRUE(IdWith("", path).ok());
    WriteFile(path, std::string(4097, 'a'), 0600);
    const Status status = IdWith("", path).status();
    EXPECT_EQ(status.code(), Code::kInvalidUsage);
    EXPECT_TRUE(Mentions(status, "more than 4096 bytes")) << status.message();
  });
}

// Another user may let all users read that user's file; a warning appears once, also without a log.
TEST(SecretTest, FilesOfOthersThatAllMayReadAreReportedOnceOnStandardError) {
  if (!harness::MayActForOthers()) GTEST_SKIP() << "only root may act for other users, and not in every container";
  const Folder folder;
  InProcesses(1, {{"NCCL_DEBUG", ""}}, [&](RankContext&) {
    const std::string path = folder.Path("secret");
    WriteFile(path, "open sesame, please\n", 0644);
    ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(IdWith("", path).ok());
    const std::string errors = testing::internal::GetCapturedStderr();
    const size_t first = errors.find("every user of this machine may read it");
    EXPECT_NE(first, std::string::npos) << errors;
    EXPECT_EQ(errors.find("every user", first + 1), std::string::npos) << errors;
  });
}

// The id depends on the secret and is sent in clear, so an eavesdropper may try texts. RFC 9106, and OWASP's Password
// Storage Cheat Sheet for the least cost.
TEST(SecretTest, TryingATextCostsAnArgon2) {
  InProcesses(1, {}, [](RankContext&) {
    const std::string text = "open sesame, please";
    const Secret salt = HashText("axccl argon2id salt", "");
    Secret expected;
    ASSERT_EQ(crypto_pwhash(expected.data(), expected.size(), text.data(), text.size(), salt.data(), 2, 19u << 20,
                            crypto_pwhash_ALG_ARGON2ID13),
              0);
    EXPECT_EQ(FieldsOf(IdWith(text, "")).secret, expected);
  });
}

// ---- without a secret ----

TEST(UserSecretTest, ProcessesThatStartAtOnceShareOneThatOthersCannotRead) {
  const Folder folder;
  constexpr int kProcesses = 8;
  InProcesses(kProcesses, {{"AXCCL_CACHE_DIR", folder.Path("new/cache")}}, [&](RankContext& context) {
    umask(0);
    ASSERT_TRUE(context.Barrier(1));
    const Result<UniqueId> id = IdFromText(kHere);
    ASSERT_TRUE(id.ok()) << id.status().message();
    std::memcpy(context.board() + sizeof(UniqueId) * static_cast<size_t>(context.rank()), &id.value(),
                sizeof(UniqueId));
    ASSERT_TRUE(context.Barrier(2));
    EXPECT_EQ(std::memcmp(context.board(), &id.value(), sizeof(UniqueId)), 0);
    if (context.rank() != 0) return;
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.Path("new/cache"))) {
      struct stat info {};
      ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
      EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
      EXPECT_EQ(info.st_uid, geteuid());
      ++files;
    }
    EXPECT_EQ(files, 1);  // no unfinished file is left
  });
}

TEST(UserSecretTest, IsNotTheSameOnTwoMachines) {
  const Folder one, other;
  InProcesses(1, {}, [&](RankContext&) {
    std::vector<IdFields> fields;
    for (const Folder* folder : {&one, &other}) {
      setenv("AXCCL_CACHE_DIR", folder->path().c_str(), 1);
      param::Reset();
      fields.push_back(FieldsOf(IdFromText(kHere)));
    }
    EXPECT_NE(fields[0].secret, fields[1].secret);
    EXPECT_NE(fields[0].id, fields[1].id);
  });
}

// A file that another user created or can read, or that leads elsewhere, is not this user's secret: another file is
// used.
TEST(UserSecretTest, FilesThatAreNotThisUsersAloneAreNotUsed) {
  const Folder folder;
  const std::string text = std::string(64, 'a') + "\n";
  const std::string path = folder.Path("secret-" + std::to_string(geteuid()));
  Secret known;
  known.fill(0xaa);
  using Spoil = std::pair<const char*, std::function<void()>>;
  std::vector<Spoil> spoils{
      {"others may read it", [&] { WriteFile(path, text, 0644); }},
      {"a link",
       [&] {
         WriteFile(folder.Path("elsewhere"), text, 0600);
         ASSERT_EQ(symlink(folder.Path("elsewhere").c_str(), path.c_str()), 0);
       }},
      {"short", [&] { WriteFile(path, "aaaa", 0600); }},
      {"no text of this kind", [&] { WriteFile(path, std::string(64, 'z'), 0600); }},
      {"a pipe", [&] { ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); }},
  };
  if (harness::MayActForOthers()) {
    spoils.emplace_back("another user's", [&] {
      WriteFile(path, text, 0600);
      ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
    });
  }
  InProcesses(1, {{"AXCCL_CACHE_DIR", folder.path()}}, [&](RankContext&) {
    for (const auto& [what, spoil] : spoils) {
      SCOPED_TRACE(what);
      unlink(path.c_str());
      ASSERT_NO_FATAL_FAILURE(spoil());
      EXPECT_NE(FieldsOf(IdFromText(kHere)).secret, known);
    }
    unlink(path.c_str());
    WriteFile(path, text, 0600);
    EXPECT_EQ(FieldsOf(IdFromText(kHere)).secret, known);
  });
}

// Neither a home nor a cache folder, as in some containers.
TEST(UserSecretTest, WithoutAHomeItIsInTmp) {
  InProcesses(2, {{"HOME", ""}, {"XDG_CACHE_HOME", ""}, {"AXCCL_CACHE_DIR", ""}}, [](RankContext& context) {
    const Secret mine = FieldsOf(IdFromText(kHere)).secret;
    std::memcpy(context.board() + sizeof(mine) * static_cast<size_t>(context.rank()), &mine, sizeof(mine));
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(std::memcmp(context.board(), &mine, sizeof(mine)), 0);
    struct stat info {};
    const std::string folder = "/tmp/axccl-" + std::to_string(geteuid());
    ASSERT_EQ(lstat(folder.c_str(), &info), 0);
    EXPECT_TRUE(S_ISDIR(info.st_mode));
    EXPECT_EQ(info.st_mode & 022, 0u);
  });
}

// ---- other users ----

// Rank 0 waits at a loopback address without a secret. Another user of the machine who claims rank 1 is refused, both
// with that user's secret and with the one that all users once shared, and gets nothing; then the real rank 1 joins.
TEST(UserSecretTest, AnotherUserCanNeitherJoinNorGetData) {
  if (!harness::MayActForOthers()) GTEST_SKIP() << "only root may act for other users, and not in every container";
  const Folder folder;
  const std::string port = FreePort();
  InProcesses(3, {{"AXCCL_CACHE_DIR", folder.Path("cache")}}, [&](RankContext& context) {
    const std::string at = "127.0.0.1:" + port;
    if (context.rank() == 2) {
      ASSERT_EQ(setgid(kNobody), 0);
      ASSERT_EQ(setuid(kNobody), 0);
      const Result<UniqueId> own = IdFromText(at);
      ASSERT_TRUE(own.ok()) << own.status().message();
      IdFields once = Unpack(own.value()).value();
      once.secret = HashText("axccl environment secret", "");
      const Secret id = HashText({reinterpret_cast<const char*>(once.secret.data()), once.secret.size()},
                                 "axccl environment id " + port);
      std::copy_n(id.begin(), once.id.size(), once.id.begin());
      for (const UniqueId& tried : {own.value(), Pack(once)}) {
        Result<std::unique_ptr<Session>> session = Session::Join(tried, 1, 2, Patient(), nullptr);
        EXPECT_FALSE(session.ok());
        EXPECT_EQ(session.status().code(), Code::kInvalidUsage) << session.status().message();
        EXPECT_TRUE(Mentions(session.status(), "does not know the unique id")) << session.status().message();
        EXPECT_TRUE(Mentions(session.status(), "belong to one user")) << session.status().message();
      }
      context.Set(0, 1);
      return;
    }
    if (context.rank() == 1) context.Await(0);
    const Result<UniqueId> id = IdFromText(at);
    ASSERT_TRUE(id.ok()) << id.status().message();
    Result<std::unique_ptr<Session>> session = Session::Join(id.value(), context.rank(), 2, Patient(), nullptr);
    ASSERT_TRUE(session.ok()) << session.status().message();
    ExpectExchange(session.value().get(), context.rank(), 2, 50, 1);
  });
}

}  // namespace
}  // namespace axccl::boot
