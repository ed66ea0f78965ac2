// Errors when a descriptor cannot be opened.
#include "src/base/service_fd.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace axccl::service {
namespace {

// When a call fails for lack of a descriptor and another thread then closes one, the limit is still the cause.
TEST(OpenError, NamesTheLimitEvenIfADescriptorIsFreeAgain) {
  ASSERT_TRUE(CheckRoom(1, "a socket").ok());
  const Status error = OpenError(EMFILE, "a socket");
  EXPECT_EQ(error.code(), Code::kSystemError);
  EXPECT_NE(error.message().find("a socket needs 1 file descriptor, but process "), std::string::npos)
      << error.message();
  EXPECT_NE(error.message().find("ulimit -n"), std::string::npos) << error.message();
}

TEST(OpenError, PassesOtherErrorsOn) {
  EXPECT_EQ(OpenError(EACCES, "a socket").message().find("ulimit"), std::string::npos);
}

}  // namespace
}  // namespace axccl::service
