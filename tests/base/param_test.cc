#include "src/base/param.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "src/base/files.h"
#include "tests/base/environment.h"
#include "tests/harness/mounts.h"

namespace axccl::param {
namespace {

using test::Environment;

constexpr int kSkipped = 77;  // exit status

TEST(ParamTable, RowsAreSound) {
  std::set<std::string> names;
  for (const Info& info : Table()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(names.insert(info.name).second) << "twice in the table";
    EXPECT_NE(*info.meaning, '\0');
    const std::string type = info.type;
    int64_t number;
    double seconds;
    if (type == "int" || type == "bytes") {
      EXPECT_TRUE(ParseInt(info, info.fallback, &number)) << "default \"" << info.fallback << "\"";
    } else if (type == "seconds") {
      EXPECT_TRUE(ParseSeconds(info, info.fallback, &seconds)) << "default \"" << info.fallback << "\"";
    } else {
      EXPECT_EQ(type, "string");
    }
  }
}

TEST(Param, DefaultWhenItIsNotSet) {
  Environment environment;
  Source source = Source::kEnvironment;
  EXPECT_EQ(Get("AXCCL_DEVICE", &source), "auto");
  EXPECT_EQ(source, Source::kDefault);
  EXPECT_EQ(SourceName(source), "default");
  EXPECT_EQ(GetInt("AXCCL_SCRATCH_BYTES"), 2 << 20);
  EXPECT_EQ(GetSeconds("AXCCL_INIT_TIMEOUT"), 600);
}

TEST(Param, UnknownNameIsEmptyOrZero) {
  Environment environment;
  EXPECT_EQ(Find("AXCCL_NO_SUCH"), nullptr);
  EXPECT_EQ(Get("AXCCL_NO_SUCH"), "");
  EXPECT_EQ(GetInt("AXCCL_NO_SUCH"), 0);
  EXPECT_EQ(GetSeconds("AXCCL_NO_SUCH"), 0);
  Reset("AXCCL_NO_SUCH");
}

TEST(Param, EnvironmentBeatsFile) {
  Environment environment;
  environment.WriteFile(".nccl.conf", "NCCL_ALGO=ring\nNCCL_PROTO=simple\n");
  environment.Set("NCCL_ALGO", "tree");
  environment.Forget();
  Source source;
  EXPECT_EQ(Get("NCCL_ALGO", &source), "tree");
  EXPECT_EQ(source, Source::kEnvironment);
  EXPECT_EQ(SourceName(source), "environment");
  EXPECT_EQ(Get("NCCL_PROTO", &source), "simple");
  EXPECT_EQ(source, Source::kUserFile);
  EXPECT_EQ(SourceName(source), environment.folder() + "/.nccl.conf");
}

TEST(Param, NamedFileReplacesTheOneInHome) {
  Environment environment;
  environment.WriteFile(".nccl.conf", "NCCL_ALGO=ring\nNCCL_PROTO=simple\n");
  environment.Set("NCCL_CONF_FILE", environment.WriteFile("other.conf", "NCCL_ALGO=tree\n"));
  environment.Forget();
  EXPECT_EQ(Get("NCCL_ALGO"), "tree");
  EXPECT_EQ(Get("NCCL_PROTO"), "");
}

// In order: the environment, the file that NCCL_CONF_FILE names or that of the home folder, the system's.
TEST(Param, FileOfTheUserBeatsThatOfTheSystem) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may mount";
  Environment environment{{"NCCL_ALGO", "tree"}};
  environment.WriteFile(".nccl.conf", "NCCL_ALGO=oneshot\nNCCL_PROTO=home\n");
  const std::string named = environment.WriteFile("other.conf", "NCCL_SOCKET_IFNAME=named\n");
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || !harness::MountOver("tmpfs", "/etc")) _exit(kSkipped);
    std::ofstream("/etc/nccl.conf") << "NCCL_ALGO=ring\nNCCL_PROTO=system\nNCCL_SOCKET_IFNAME=system\n"
                                       "NCCL_HOSTID=system\n";
    environment.Forget();
    Source source = Source::kDefault;
    EXPECT_EQ(Get("NCCL_ALGO", &source), "tree");
    EXPECT_EQ(source, Source::kEnvironment);
    EXPECT_EQ(Get("NCCL_PROTO", &source), "home");
    EXPECT_EQ(source, Source::kUserFile);
    EXPECT_EQ(Get("NCCL_SOCKET_IFNAME"), "system");
    EXPECT_EQ(Get("NCCL_HOSTID", &source), "system");
    EXPECT_EQ(SourceName(source), "/etc/nccl.conf");
    environment.Set("NCCL_CONF_FILE", named);
    environment.Forget();
    EXPECT_EQ(Get("NCCL_PROTO"), "system");
    EXPECT_EQ(Get("NCCL_SOCKET_IFNAME"), "named");
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Param, FileHasCommentsSpacesAndBadLines) {
  Environment environment{{"NCCL_DEBUG", "WARN"}};
  environment.WriteFile(".nccl.conf",
                        "# NCCL_ALGO=ring\n\n  NCCL_ALGO =  tree \t\nno equals sign\n=nothing\nNCCL_PROTO=a=b\r\n");
  environment.Forget();
  EXPECT_EQ(Get("NCCL_ALGO"), "tree");
  EXPECT_EQ(Get("NCCL_PROTO"), "a=b");
  EXPECT_EQ(environment.CountLog({".nccl.conf:4:", "NAME=value"}), 1);
  EXPECT_EQ(environment.CountLog({".nccl.conf:5:", "NAME=value"}), 1);
}

TEST(Param, EmptyMeansNotSet) {
  Environment environment{{"AXCCL_SCRATCH_BYTES", ""}};
  environment.WriteFile(".nccl.conf", "AXCCL_SCRATCH_BYTES=1M\n");
  environment.Forget();
  EXPECT_EQ(GetInt("AXCCL_SCRATCH_BYTES"), 1 << 20);
}

TEST(Param, WordsAreComparedWithoutCaseAndReturnedInTheTablesSpelling) {
  Environment environment{{"AXCCL_DEVICE", "HOST"}, {"NCCL_DEBUG", "warn"}, {"NCCL_SOCKET_FAMILY", "af_inet6"}};
  EXPECT_EQ(Get("AXCCL_DEVICE"), "host");
  EXPECT_EQ(Get("NCCL_DEBUG"), "WARN");
  EXPECT_EQ(Get("NCCL_SOCKET_FAMILY"), "AF_INET6");
}

struct BadValue {
  const char* name;
  const char* value;
  const char* accepted;  // expected in the report
};

class BadValueTest : public testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, KeepsTheDefaultAndIsReportedOnce) {
  const BadValue& bad = GetParam();
  Environment environment{{"NCCL_DEBUG", "WARN"}, {bad.name, bad.value}};
  Source source = Source::kEnvironment;
  EXPECT_EQ(Get(bad.name, &source), Find(bad.name)->fallback);
  EXPECT_EQ(source, Source::kDefault);
  EXPECT_EQ(Get(bad.name), Find(bad.name)->fallback);
  EXPECT_EQ(
      environment.CountLog({"NCCL WARN", bad.name, std::string("=") + bad.value + " (environment)", bad.accepted}), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadValueTest,
    testing::Values(
        BadValue{"AXCCL_DEVICE", "gpu", "auto|host|cuda"}, BadValue{"AXCCL_DEVICE", "hos", "auto|host|cuda"},
        BadValue{"AXCCL_DEVICE", "auto|host", "auto|host|cuda"}, BadValue{"NCCL_COMM_BLOCKING", "2", "from 0 to 1"},
        BadValue{"NCCL_COMM_BLOCKING", "yes", "from 0 to 1"}, BadValue{"NCCL_COMM_BLOCKING", "1x", "from 0 to 1"},
        BadValue{"NCCL_COMM_BLOCKING", "0x", "from 0 to 1"}, BadValue{"NCCL_COMM_BLOCKING", " ", "from 0 to 1"},
        BadValue{"NCCL_CTA_POLICY", "4", "from 0 to 3"},
        BadValue{"NCCL_CTA_POLICY", "ZERO|ONE", "DEFAULT|EFFICIENCY|ZERO"},
        BadValue{"NCCL_CTA_POLICY", "|", "DEFAULT|EFFICIENCY|ZERO"}, BadValue{"NCCL_MAX_CTAS", "ZERO", "from 1 to 64"},
        BadValue{"AXCCL_BUSY_POLL", "0x10", "from 0 to"}, BadValue{"AXCCL_BUSY_POLL", " 1", "from 0 to"},
        BadValue{"NCCL_MAX_CTAS", "0", "from 1 to 64"}, BadValue{"NCCL_MAX_CTAS", "-1", "from 1 to 64"},
        BadValue{"NCCL_MAX_CTAS", "99999999999999999999", "from 1 to 64"},
        BadValue{"AXCCL_HEAP_BYTES", "-1", "K, M, G or T"}, BadValue{"AXCCL_HEAP_BYTES", "M", "K, M, G or T"},
        BadValue{"AXCCL_HEAP_BYTES", "1MB", "K, M, G or T"},
        BadValue{"AXCCL_HEAP_BYTES", "9000000000T", "K, M, G or T"}, BadValue{"AXCCL_TIMEOUT", "-0.5", "seconds"},
        BadValue{"AXCCL_TIMEOUT", "nan", "seconds"}, BadValue{"AXCCL_TIMEOUT", "inf", "seconds"},
        BadValue{"AXCCL_TIMEOUT", "5s", "seconds"}));

TEST(Param, BadValueInTheEnvironmentGivesWayToTheFile) {
  Environment environment{{"AXCCL_TIMEOUT", "soon"}};
  environment.WriteFile(".nccl.conf", "AXCCL_TIMEOUT=2.5\n");
  environment.Forget();
  EXPECT_EQ(GetSeconds("AXCCL_TIMEOUT"), 2.5);
}

TEST(Param, BytesTakeBinarySuffixes) {
  const std::pair<const char*, int64_t> cases[] = {{"1048576", 1 << 20},     {"64k", 64 << 10},
                                                   {"64K", 64 << 10},        {"3M", 3 << 20},
                                                   {"5g", int64_t{5} << 30}, {"1T", int64_t{1} << 40}};
  for (const auto& [text, expected] : cases) {
    Environment environment{{"AXCCL_SCRATCH_BYTES", text}};
    EXPECT_EQ(GetInt("AXCCL_SCRATCH_BYTES"), expected) << text;
  }
}

// As NCCL reads them, and scripts for NCCL write them.
TEST(Param, NumbersOfNcclFollowTheRulesOfC) {
  const struct {
    const char* name;
    const char* text;
    int64_t expected;
  } cases[] = {
      {"NCCL_P2P_DISABLE", "0x1", 1},
      {"NCCL_P2P_DISABLE", " 1", 1},
      {"NCCL_P2P_DISABLE", "+1\t", 1},
      {"NCCL_TOPO_DUMP_FILE_RANK", "010", 8},
      {"AXCCL_BUSY_POLL", "010", 10},
      {"NCCL_MAX_CTAS", "0x20", 32},
      {"NCCL_MAX_CTAS", "65", 64},
      {"NCCL_MIN_NCHANNELS", "128", 64},
      {"NCCL_CTA_POLICY", "2", 2},
      {"NCCL_CTA_POLICY", "DEFAULT", 0},
      {"NCCL_CTA_POLICY", "efficiency", 1},
      {"NCCL_CTA_POLICY", "ZERO", 2},
      {"NCCL_CTA_POLICY", "EFFICIENCY|Zero", 3},
  };
  for (const auto& c : cases) {
    Environment environment{{c.name, c.text}};
    Source source = Source::kDefault;
    (void)Get(c.name, &source);
    EXPECT_EQ(source, Source::kEnvironment) << c.name << "=" << c.text;
    EXPECT_EQ(GetInt(c.name), c.expected) << c.name << "=" << c.text;
  }
}

// A mistyped setting of the library's own is seen without a log; one of NCCL may be meant for another library.
TEST(Param, BadValueOfAnOwnParameterIsReportedInAnyCase) {
  Environment environment{{"AXCCL_ENCRYPT", "true"}, {"NCCL_MAX_CTAS", "many"}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(Get("AXCCL_ENCRYPT"), "0");
  EXPECT_EQ(Get("NCCL_MAX_CTAS"), "64");
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("AXCCL_ENCRYPT=true (environment) is ignored: accepted is one of 0|auth|1"), std::string::npos)
      << shown;
  EXPECT_EQ(shown.find("NCCL_MAX_CTAS"), std::string::npos) << shown;
  EXPECT_NE(Complaint("NCCL_MAX_CTAS").find("from 1 to 64"), std::string::npos);
  EXPECT_EQ(Complaint("AXCCL_DEVICE"), "");
}

TEST(Param, BadDebugLevelDoesNotRecurse) {
  // The log asks for its level while the level's own bad value is about to be logged.
  Environment environment{{"NCCL_DEBUG", "LOUD"}};
  testing::internal::CaptureStderr();
  EXPECT_EQ(Get("NCCL_DEBUG"), "NONE");
  const std::string shown = testing::internal::GetCapturedStderr();
  EXPECT_NE(shown.find("NCCL_DEBUG=LOUD (environment) is ignored: accepted is one of NONE|"), std::string::npos)
      << shown;
  EXPECT_TRUE(environment.Log().empty());
}

TEST(Param, ValueStaysUntilForgotten) {
  Environment environment{{"NCCL_ALGO", "ring"}};
  EXPECT_EQ(Get("NCCL_ALGO"), "ring");
  environment.Set("NCCL_ALGO", "tree");
  EXPECT_EQ(Get("NCCL_ALGO"), "ring");
  Reset("NCCL_ALGO");
  EXPECT_EQ(Get("NCCL_ALGO"), "tree");
}

TEST(Param, MisspeltNamesAreReported) {
  Environment environment{{"NCCL_DEBUG", "INFO"}, {"AXCCL_DEVISE", "host"}};
  (void)Get("AXCCL_DEVICE");
  EXPECT_EQ(environment.CountLog({"NCCL WARN", "AXCCL_DEVISE"}), 1);
}

// Also without a log, and in files.
TEST(Param, MisspeltNamesAndAMissingFileAreReportedInAnyCase) {
  Environment environment{{"AXCCL_TIMOUT", "4"}, {"AXCCL_TEST_SEED", "1"}};
  const std::string conf = environment.WriteFile("other.conf", "NCCL_ALGO=ring\nAXCCL_TIMOUT=4\nAXCCL_BANANAS=1\n");
  environment.Set("NCCL_CONF_FILE", conf);
  environment.Forget();
  testing::internal::CaptureStderr();
  EXPECT_EQ(Get("NCCL_ALGO"), "ring");
  std::string shown = testing::internal::GetCapturedStderr();
  for (const std::string& line :
       {std::string("AxCCL: environment variable AXCCL_TIMOUT is no setting and has no effect; did you mean "
                    "AXCCL_TIMEOUT?\n"),
        conf + ":2: AXCCL_TIMOUT is no setting",
        conf + ":3: AXCCL_BANANAS is no setting and has no effect; axccl-info"})
    EXPECT_NE(shown.find(line), std::string::npos) << shown;
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 3) << shown;
  for (const auto& [file, why] :
       {std::pair(conf + ".none", "No such file"), {environment.folder(), "Is a directory"}}) {
    Environment other{{"NCCL_CONF_FILE", file}};
    testing::internal::CaptureStderr();
    EXPECT_EQ(Get("NCCL_ALGO"), "");
    shown = testing::internal::GetCapturedStderr();
    EXPECT_NE(shown.find("NCCL_CONF_FILE=" + file + " cannot be read: " + why), std::string::npos) << shown;
  }
}

TEST(Param, OneLineListsVariablesOfNcclWithoutEffect) {
  Environment environment{{"NCCL_DEBUG", "INFO"},
                          {"NCCL_NVB_DISABLE", "1"},
                          {"NCCL_SHM_DISABLE", "1"},
                          {"NCCL_CUMEM_ENABLE", "0"},
                          {"NCCL_ALGO", "ring"}};
  (void)Get("AXCCL_DEVICE");
  EXPECT_EQ(
      environment.CountLog({"NCCL INFO", "no effect", "NCCL_NVB_DISABLE", "NCCL_SHM_DISABLE", "NCCL_CUMEM_ENABLE"}), 1);
  EXPECT_EQ(environment.CountLog({"no effect"}), 1);
  EXPECT_EQ(environment.CountLog({"no effect", "NCCL_ALGO"}), 0);
  EXPECT_EQ(environment.CountLog({"no effect", "NCCL_DEBUG"}), 0);
}

TEST(Param, SecretIsNeverShown) {
  Environment environment{{"NCCL_DEBUG", "TRACE"}, {"NCCL_DEBUG_SUBSYS", "ALL"}, {"AXCCL_SECRET", "open sesame"}};
  EXPECT_EQ(Get("AXCCL_SECRET"), "open sesame");
  EXPECT_EQ(GetShown("AXCCL_SECRET"), "<set>");
  EXPECT_EQ(environment.CountLog({"AXCCL_SECRET=<set>"}), 1);
  EXPECT_EQ(environment.CountLog({"sesame"}), 0);
  environment.Set("AXCCL_SECRET", "");
  environment.Forget();
  EXPECT_EQ(GetShown("AXCCL_SECRET"), "");
}

TEST(Param, ThreadsReadTheSame) {
  Environment environment{{"NCCL_DEBUG", "INFO"}, {"NCCL_ALGO", "ring"}, {"AXCCL_TIMEOUT", "1.5"}};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(Get("NCCL_ALGO"), "ring");
        EXPECT_EQ(GetSeconds("AXCCL_TIMEOUT"), 1.5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(environment.CountLog({"NCCL_ALGO=ring (environment)"}), 1);
}

// ---- privileges ----

// What the next test runs, as the user of the program.
TEST(GainedPrivileges, DISABLED_Program) {
  if (getauxval(AT_SECURE) == 0) _exit(kSkipped);
  EXPECT_EQ(Get("NCCL_DEBUG_FILE"), "stdout");
  EXPECT_EQ(Get("AXCCL_CACHE_DIR"), "");
  EXPECT_EQ(Get("AXCCL_SECRET_FILE"), "");
  EXPECT_EQ(CacheFolder(), "");
  EXPECT_EQ(Get("NCCL_PROTO"), "") << "from the user's file";
  EXPECT_EQ(Get("NCCL_ALGO"), "ring") << "names no file";
}

// Else, the user of a program that others may not be could have it write into their files.
TEST(GainedPrivileges, TakeNoFileFromTheEnvironment) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may act for other users";
  Environment environment;
  const std::string program = environment.folder() + "/program";
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chmod(environment.folder().c_str(), 0755), 0);
  // Not of root: while it is there, others can run it, too.
  constexpr uid_t kNobody = 65534, kNobodyElse = 65533;
  ASSERT_EQ(chown(program.c_str(), kNobodyElse, static_cast<gid_t>(-1)), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const std::string conf = environment.WriteFile(".nccl.conf", "NCCL_PROTO=simple\n");
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"NCCL_DEBUG_FILE", "AXCCL_CACHE_DIR", "AXCCL_SECRET_FILE", "XDG_CACHE_HOME"})
      setenv(name, "/tmp/not-for-this-program", 1);
    setenv("NCCL_CONF_FILE", conf.c_str(), 1);
    setenv("NCCL_ALGO", "ring", 1);
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(kSkipped);
    execl(program.c_str(), program.c_str(), "--gtest_filter=GainedPrivileges.DISABLED_Program",
          "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
    _exit(kSkipped);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "no program gains privileges here";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace axccl::param
