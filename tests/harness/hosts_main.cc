// Replaces GoogleTest's main in programs whose tests all need hosts.
#include <gtest/gtest.h>

#include "tests/harness/test_hosts.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int missing = axccl::harness::TestHosts::CheckPresence();
  return missing != 0 ? missing : RUN_ALL_TESTS();
}
