// A fixture for tests of stored measurements: each test has its own cache folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "src/base/param.h"
#include "tests/harness/folder.h"

namespace axccl::cost {

class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override { KeepIn(folder_); }
  void TearDown() override {
    unsetenv("AXCCL_CACHE_DIR");
    param::Reset();
  }
  static void KeepIn(const std::string& folder) {
    setenv("AXCCL_CACHE_DIR", folder.c_str(), 1);
    param::Reset();
  }

  const harness::Folder own_;
  const std::string& folder_ = own_.path();
};

}  // namespace axccl::cost
