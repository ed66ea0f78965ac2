#include "src/boot/unique_id.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/param.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::RankContext;

IdFields SomeFields() {
  IdFields fields;
  fields.num_addresses = 1;
  fields.address[0].family = 4;
  fields.address[0].port = 4711;
  fields.address[0].ip = {127, 0, 0, 1};
  fields.secret[0] = 9;
  fields.id[15] = 3;
  return fields;
}

bool Mentions(const Status& status, const char* text) { return status.message().find(text) != std::string_view::npos; }

TEST(UniqueIdTest, PacksAndUnpacks) {
  const UniqueId id = Pack(SomeFields());
  EXPECT_TRUE(CheckUniqueId(id).ok());
  Result<IdFields> fields = Unpack(id);
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(fields.value().id, SomeFields().id);
  EXPECT_EQ(fields.value().secret, SomeFields().secret);
  EXPECT_EQ(ToText(fields.value().address[0]), "127.0.0.1:4711");
}

TEST(UniqueIdTest, EveryDamagedByteIsNoticed) {
  const UniqueId good = Pack(SomeFields());
  for (size_t i = 0; i < sizeof good.bytes; ++i) {
    for (const uint8_t flip : {1, 128}) {
      UniqueId bad = good;
      bad.bytes[i] ^= flip;
      EXPECT_EQ(CheckUniqueId(bad).code(), Code::kInvalidArgument) << "byte " << i;
    }
  }
  for (size_t length = 0; length < sizeof good.bytes; ++length) {
    UniqueId cut = good;
    if (std::count(cut.bytes + length, cut.bytes + sizeof cut.bytes, 0) ==
        static_cast<ptrdiff_t>(sizeof cut.bytes - length)) {
      continue;
    }
    std::memset(cut.bytes + length, 0, sizeof cut.bytes - length);
    EXPECT_FALSE(CheckUniqueId(cut).ok()) << "cut at " << length;
  }
}

TEST(UniqueIdTest, ErrorsNameTheCause) {
  UniqueId zero{};
  EXPECT_TRUE(Mentions(CheckUniqueId(zero), "all 128 bytes are zero"));
  UniqueId foreign;
  harness::Random random(harness::Seed());
  for (uint8_t& byte : foreign.bytes) byte = static_cast<uint8_t>(random.Next());
  foreign.bytes[0] = 'x';
  EXPECT_TRUE(Mentions(CheckUniqueId(foreign), "not made by this library"));
  IdFields newer = SomeFields();
  newer.version = 7;
  EXPECT_TRUE(Mentions(CheckUniqueId(Pack(newer)), "layout version 7, this library reads version 1"));
  IdFields none = SomeFields();
  none.num_addresses = 0;
  EXPECT_FALSE(CheckUniqueId(Pack(none)).ok());
  none.num_addresses = 3;
  EXPECT_FALSE(CheckUniqueId(Pack(none)).ok());
  none = SomeFields();
  none.address[0].family = 5;
  EXPECT_FALSE(CheckUniqueId(Pack(none)).ok());
}

TEST(UniqueIdTest, AddressesSurviveConversion) {
  Address address = SomeFields().address[0];
  for (const int family : {4, 6}) {
    address.family = static_cast<uint8_t>(family);
    if (family == 6) address.ip = {0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    socklen_t bytes = 0;
    const sockaddr_storage storage = ToSockaddr(address, &bytes);
    const Address back = FromSockaddr(reinterpret_cast<const sockaddr*>(&storage));
    EXPECT_EQ(ToText(back), family == 4 ? "127.0.0.1:4711" : "[2001::1]:4711");
    EXPECT_EQ(IsLoopback(back), family == 4);
  }
  address.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_TRUE(IsLoopback(address));
}

// Parameters are read once per process, so each environment gets its own process.
void WithEnvironment(std::vector<std::pair<std::string, std::string>> environment, const std::function<void()>& body) {
  harness::RunOptions options;
  options.environment = std::move(environment);
  harness::RunRanks(
      harness::Processes(1), [&](RankContext&) { body(); }, options);
}

TEST(CommIdTest, BadTextsAreNamed) {
  WithEnvironment({}, [] {
    for (const char* text :
         {"", "host", "host:", ":1", "host:0", "host:65536", "host:12x", "host:-1", "1.2.3.4:99999999999"}) {
      const Status status = IdFromText(text).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
      EXPECT_TRUE(Mentions(status, "expected host:port")) << text;
    }
  });
}

TEST(CommIdTest, WithoutASecretOnlyLoopback) {
  WithEnvironment({}, [] {
    Result<UniqueId> local = IdFromText("127.0.0.1:5000");
    ASSERT_TRUE(local.ok()) << local.status().message();
    EXPECT_EQ(Unpack(local.value()).value().flags, kFromEnvironment | kUserSecret);
    // A bare chroot has no /etc/hosts.
    const Result<UniqueId> by_name = IdFromText("localhost:5000");
    EXPECT_TRUE(by_name.ok() || Mentions(by_name.status(), "localhost")) << by_name.status().message();
    if (by_name.ok()) {
      EXPECT_EQ(std::memcmp(local.value().bytes, by_name.value().bytes, sizeof(UniqueId)), 0);
    }
    EXPECT_NE(Unpack(IdFromText("127.0.0.1:5001").value()).value().id, Unpack(local.value()).value().id);
    EXPECT_EQ(Unpack(IdFromText("[::1]:5000").value()).value().id, Unpack(local.value()).value().id);
    const Status away = IdFromText("10.1.2.3:5000").status();
    EXPECT_EQ(away.code(), Code::kInvalidUsage);
    EXPECT_TRUE(Mentions(away, "AXCCL_SECRET")) << away.message();
  });
}

}  // namespace
}  // namespace axccl::boot
