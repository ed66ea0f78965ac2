#include "src/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

namespace axccl {
namespace {

Status FailIf(bool fail) { return fail ? MakeStatus(Code::kInvalidUsage, "count %d", 7) : Status(); }

Status PassOn(bool fail, bool* reached) {
  AXCCL_RETURN_IF_ERROR(FailIf(fail));
  *reached = true;
  return Status();
}

Result<std::unique_ptr<int>> Make(bool fail) {
  if (fail) return MakeStatus(Code::kRemoteError, "gone");
  return std::make_unique<int>(5);
}

Result<int> Take(bool fail) {
  AXCCL_ASSIGN_OR_RETURN(const std::unique_ptr<int> made, Make(fail));
  return *made + 1;
}

TEST(Status, OkIsEmpty) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::kOk);
  EXPECT_EQ(status.message(), "");
  EXPECT_TRUE(Status(Code::kOk, "ignored").ok());
}

TEST(Status, CopiesAreEqualAndIndependent) {
  Status first = MakeStatus(Code::kTimeout, "rank %d of %s", 3, "world");
  Status second = first;
  first = Status();
  EXPECT_TRUE(first.ok());
  EXPECT_EQ(second.code(), Code::kTimeout);
  EXPECT_EQ(second.message(), "rank 3 of world");
  const Status& self = second;
  second = self;
  EXPECT_EQ(second.message(), "rank 3 of world");
}

TEST(Status, SystemErrorNamesTheReason) {
  const Status status = SystemError(ENOENT, "open(%s)", "x");
  EXPECT_EQ(status.code(), Code::kSystemError);
  EXPECT_EQ(status.message(), "open(x): No such file or directory (errno 2)");
}

TEST(Status, LongMessagesAreWhole) {
  const std::string text(5000, 'm');
  EXPECT_EQ(MakeStatus(Code::kInternalError, "%s", text.c_str()).message(), text);
}

template <class Exception>
Status Thrown(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return StatusOfException("ncclSend");
  }
}

TEST(Status, TranslatesExceptions) {
  const Status memory = Thrown(std::bad_alloc());
  EXPECT_EQ(memory.code(), Code::kSystemError);
  EXPECT_TRUE(memory.message().starts_with("ncclSend: out of memory;")) << memory.message();
  const Status threads = Thrown(std::system_error(EAGAIN, std::generic_category()));
  EXPECT_EQ(threads.code(), Code::kSystemError);
  EXPECT_NE(threads.message().find("(errno 11)"), std::string_view::npos) << threads.message();
  const Status other = Thrown(std::out_of_range("index 7"));
  EXPECT_EQ(other.code(), Code::kInternalError);
  EXPECT_NE(other.message().find("index 7"), std::string_view::npos) << other.message();
  EXPECT_EQ(Thrown(7).code(), Code::kInternalError);
}

TEST(Status, NeedsNoMemoryForItsCode) {
  const Status status = Status::WithoutText(Code::kTimeout), copy = status;
  EXPECT_EQ(copy.code(), Code::kTimeout);
  EXPECT_NE(copy.message().find("out of memory"), std::string_view::npos) << copy.message();
}

TEST(Status, PrefixNamesTheOwnerOfAnError) {
  const Status status = Prefixed("ncclX", MakeStatus(Code::kTimeout, "rank %d", 3));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_EQ(status.message(), "ncclX: rank 3");
  EXPECT_TRUE(Prefixed("ncclX", Status()).ok());
  EXPECT_EQ(Prefixed("ncclX", Take(false)).value(), 6);
  EXPECT_EQ(Prefixed("ncclX", Take(true)).status().message(), "ncclX: gone");
}

TEST(Status, ReturnIfErrorPassesTheMessageOn) {
  bool reached = false;
  EXPECT_EQ(PassOn(true, &reached).message(), "count 7");
  EXPECT_FALSE(reached);
  EXPECT_TRUE(PassOn(false, &reached).ok());
  EXPECT_TRUE(reached);
}

TEST(Result, HoldsAValueOrAStatus) {
  Result<int> good = Take(false);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 6);
  EXPECT_TRUE(good.status().ok());
  const Result<int> bad = Take(true);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::kRemoteError);
  EXPECT_EQ(bad.status().message(), "gone");
}

}  // namespace
}  // namespace axccl
