#include "tests/topo/machines.h"

#include <gtest/gtest.h>

#include "src/base/files.h"
#include "src/topo/text.h"

namespace axccl::test {

std::string MachinePath(const std::string& name) {
  return std::string(AXCCL_TEST_SOURCE_DIR) + "/tests/topo/machines/" + name;
}

std::string MachineText(const std::string& name) {
  Result<std::string> text = ReadWholeFile(MachinePath(name), topo::kMaxFileBytes);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : std::string();
}

topo::Machine ReadMachine(const std::string& name) {
  Result<topo::Machine> machine = topo::Parse(MachineText(name));
  EXPECT_TRUE(machine.ok()) << machine.status().message();
  return machine.ok() ? *machine : topo::Machine();
}

}  // namespace axccl::test
