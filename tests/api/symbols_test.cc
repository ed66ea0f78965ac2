// The library exports the NCCL API in weak and strong pairs, its own extensions, and nothing else.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "tests/api/nccl_symbols.h"

namespace axccl::test {
namespace {

struct Symbol {
  std::string address;
  char type = 0;  // as nm prints it: T strong, W weak
};

std::map<std::string, Symbol> ReadSymbols() {
  std::map<std::string, Symbol> symbols;
  FILE* const pipe = popen("nm -D --defined-only '" AXCCL_TEST_LIBRARY "'", "r");
  if (pipe == nullptr) return symbols;
  char line[4096];
  while (fgets(line, sizeof(line), pipe) != nullptr) {
    std::istringstream in(line);
    Symbol symbol;
    std::string name;
    in >> symbol.address >> symbol.type >> name;
    symbols[name] = symbol;
  }
  EXPECT_EQ(pclose(pipe), 0) << "nm failed on " AXCCL_TEST_LIBRARY;
  return symbols;
}

// Thread-locals are static, which is fast, and what dlopen has left for static ones in a program is little (1664 bytes with
// glibc, for all libraries together). Beyond that, Python and others cannot load the library.
TEST(Symbols, ThreadLocalsLeaveRoomForDlopen) {
  std::ifstream file(AXCCL_TEST_LIBRARY, std::ios::binary);
  Elf64_Ehdr header{};
  ASSERT_TRUE(file.read(reinterpret_cast<char*>(&header), sizeof header));
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    ASSERT_TRUE(file.read(reinterpret_cast<char*>(&segment), sizeof segment));
    EXPECT_TRUE(segment.p_type != PT_TLS || segment.p_memsz <= 512) << segment.p_memsz << " bytes";
  }
}

TEST(Symbols, EveryFunctionIsAPairAtOneAddress) {
  std::map<std::string, Symbol> symbols = ReadSymbols();
  for (const char* function : kNcclFunctions) {
    const Symbol weak = symbols[std::string("nccl") + function], strong = symbols[std::string("pnccl") + function];
    EXPECT_EQ(weak.type, 'W') << "nccl" << function;
    EXPECT_EQ(strong.type, 'T') << "pnccl" << function;
    EXPECT_EQ(weak.address, strong.address) << function;
  }
}

TEST(Symbols, NothingElseLeaves) {
  std::set<std::string> expected;
  for (const char* function : kNcclFunctions) {
    expected.insert(std::string("nccl") + function);
    expected.insert(std::string("pnccl") + function);
  }
  for (const auto& [name, symbol] : ReadSymbols()) {
    if (name.starts_with("axccl")) {
      EXPECT_EQ(symbol.type, 'T') << name;
    } else {
      EXPECT_TRUE(expected.contains(name)) << name << " (" << symbol.type << ") is exported";
    }
  }
}

// As the loaders of IREE, JAX and vLLM find them.
TEST(Symbols, DropInLinksLoad) {
  for (const char* path : {AXCCL_TEST_DROPIN "/libnccl.so", AXCCL_TEST_DROPIN "/libnccl.so.2"}) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    for (const char* function : kNcclFunctions) {
      const std::string name = std::string("nccl") + function;
      EXPECT_NE(dlsym(library, name.c_str()), nullptr) << name;
      EXPECT_EQ(dlsym(library, name.c_str()), dlsym(library, ("p" + name).c_str())) << name;
    }
    EXPECT_EQ(dlclose(library), 0);
  }
}

}  // namespace
}  // namespace axccl::test
