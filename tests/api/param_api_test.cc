// The parameters as programs read them through the API.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <set>
#include <string>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

// Called before the library reads any parameter; values do not change once read.
const bool kPrepared = [] {
  setenv("AXCCL_SCRATCH_BYTES", "3M", 1);
  setenv("AXCCL_TIMEOUT", "1.5", 1);
  setenv("AXCCL_SECRET", "open sesame", 1);
  setenv("NCCL_ALGO", "ring", 1);
  return true;
}();

ncclParamHandle_t Bind(const char* name) {
  ncclParamHandle_t handle = nullptr;
  EXPECT_EQ(ncclParamBind(&handle, name), ncclSuccess) << name;
  return handle;
}

TEST(ParamApi, BindTakesKnownNamesOnly) {
  ncclParamHandle_t handle = nullptr;
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_NO_SUCH"), ncclInvalidArgument);
  EXPECT_EQ(handle, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("NCCL_NO_SUCH"), std::string::npos);
  EXPECT_EQ(ncclParamBind(nullptr, "NCCL_ALGO"), ncclInvalidArgument);
  EXPECT_EQ(ncclParamBind(&handle, nullptr), ncclInvalidArgument);
  EXPECT_EQ(Bind("NCCL_ALGO"), Bind("NCCL_ALGO"));
}

TEST(ParamApi, NumbersInEveryWidthThatHoldsThem) {
  const ncclParamHandle_t scratch = Bind("AXCCL_SCRATCH_BYTES");  // 3 MiB
  int8_t i8 = 5;
  int16_t i16 = 5;
  int32_t i32 = 0;
  int64_t i64 = 0;
  uint8_t u8 = 5;
  uint16_t u16 = 5;
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  EXPECT_EQ(ncclParamGetI8(scratch, &i8), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI16(scratch, &i16), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetU8(scratch, &u8), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetU16(scratch, &u16), ncclInvalidArgument);
  EXPECT_EQ(i8 + i16 + u8 + u16, 20) << "an output was changed";
  EXPECT_EQ(ncclParamGetI32(scratch, &i32), ncclSuccess);
  EXPECT_EQ(ncclParamGetI64(scratch, &i64), ncclSuccess);
  EXPECT_EQ(ncclParamGetU32(scratch, &u32), ncclSuccess);
  EXPECT_EQ(ncclParamGetU64(scratch, &u64), ncclSuccess);
  EXPECT_EQ(i32, 3 << 20);
  EXPECT_EQ(i64, 3 << 20);
  EXPECT_EQ(u32, 3u << 20);
  EXPECT_EQ(u64, 3u << 20);
  EXPECT_EQ(ncclParamGetI8(Bind("NCCL_MAX_CTAS"), &i8), ncclSuccess);
  EXPECT_EQ(i8, 64);
  EXPECT_EQ(ncclParamGetU8(Bind("NCCL_MAX_CTAS"), &u8), ncclSuccess);
  EXPECT_EQ(u8, 64);
}

TEST(ParamApi, TextIsNoNumber) {
  int64_t value = 5;
  EXPECT_EQ(ncclParamGetI64(Bind("NCCL_ALGO"), &value), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI64(Bind("AXCCL_TIMEOUT"), &value), ncclInvalidArgument);
  EXPECT_EQ(value, 5);
}

TEST(ParamApi, BadHandlesAndOutputs) {
  int64_t value = 0;
  const char* text = nullptr;
  int length = 0;
  const auto foreign = reinterpret_cast<ncclParamHandle_t>(&value);
  EXPECT_EQ(ncclParamGetI64(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI64(foreign, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetI64(Bind("NCCL_MAX_CTAS"), nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetStr(foreign, &text), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetStr(Bind("NCCL_ALGO"), nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGet(foreign, &value, 8, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGet(Bind("NCCL_ALGO"), &value, 8, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetParameter(nullptr, &text, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetParameter("NCCL_NO_SUCH", &text, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetParameter("NCCL_ALGO", nullptr, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetAllParameterKeys(nullptr, &length), ncclInvalidArgument);
}

TEST(ParamApi, Text) {
  const char* text = nullptr;
  int length = 0;
  EXPECT_EQ(ncclParamGetStr(Bind("NCCL_ALGO"), &text), ncclSuccess);
  EXPECT_STREQ(text, "ring");
  EXPECT_EQ(ncclParamGetParameter("AXCCL_SCRATCH_BYTES", &text, &length), ncclSuccess);
  EXPECT_STREQ(text, "3M");
  EXPECT_EQ(length, 2);
  EXPECT_EQ(ncclParamGetParameter("NCCL_ALGO", &text, nullptr), ncclSuccess);
  EXPECT_STREQ(text, "ring");
}

TEST(ParamApi, RawBytes) {
  int length = 0;
  int64_t number = 0;
  double seconds = 0;
  char text[4];
  EXPECT_EQ(ncclParamGet(Bind("AXCCL_SCRATCH_BYTES"), &number, sizeof(number), &length), ncclSuccess);
  EXPECT_EQ(length, 8);
  EXPECT_EQ(number, 3 << 20);
  EXPECT_EQ(ncclParamGet(Bind("AXCCL_TIMEOUT"), &seconds, sizeof(seconds), &length), ncclSuccess);
  EXPECT_EQ(seconds, 1.5);
  EXPECT_EQ(ncclParamGet(Bind("NCCL_ALGO"), text, 3, &length), ncclInvalidArgument);
  EXPECT_EQ(length, 4);
  EXPECT_EQ(ncclParamGet(Bind("NCCL_ALGO"), text, 4, &length), ncclSuccess);
  EXPECT_EQ(std::string(text, 4), "ring");
}

TEST(ParamApi, KeysListEveryParameterOnce) {
  const char** keys = nullptr;
  int count = 0;
  ASSERT_EQ(ncclParamGetAllParameterKeys(&keys, &count), ncclSuccess);
  std::set<std::string> names(keys, keys + count);
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_TRUE(names.contains("NCCL_ALGO"));
  const char *name, *value, *source, *meaning;
  int index = 0;
  for (; axcclParamGetByIndex(index, &name, &value, &source, &meaning) == ncclSuccess; ++index)
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(index, count);
}

TEST(ParamApi, TableGivesValueAndSource) {
  const char *name, *value, *source, *meaning;
  bool found = false;
  for (int i = 0; axcclParamGetByIndex(i, &name, &value, &source, &meaning) == ncclSuccess; ++i) {
    EXPECT_NE(*meaning, '\0') << name;
    if (strcmp(name, "NCCL_ALGO") != 0) continue;
    found = true;
    EXPECT_STREQ(value, "ring");
    EXPECT_STREQ(source, "environment");
  }
  EXPECT_TRUE(found);
}

TEST(ParamApi, SecretsAreHidden) {
  const char *text, *name, *source, *meaning;
  int length;
  EXPECT_EQ(ncclParamGetStr(Bind("AXCCL_SECRET"), &text), ncclSuccess);
  EXPECT_STREQ(text, "<set>");
  EXPECT_EQ(ncclParamGetParameter("AXCCL_SECRET", &text, &length), ncclSuccess);
  EXPECT_STREQ(text, "<set>");
  for (int i = 0; axcclParamGetByIndex(i, &name, &text, &source, &meaning) == ncclSuccess; ++i)
    EXPECT_EQ(std::string(text).find("sesame"), std::string::npos) << name;
  testing::internal::CaptureStdout();
  ncclParamDumpAll();
  const std::string dump = testing::internal::GetCapturedStdout();
  EXPECT_NE(dump.find("NCCL_ALGO=ring (environment"), std::string::npos) << dump;
  EXPECT_NE(dump.find("AXCCL_SECRET=<set>"), std::string::npos) << dump;
  EXPECT_EQ(dump.find("sesame"), std::string::npos) << dump;
}

}  // namespace
