// How the kernel's machine code (FOLDER/kernels.*.cubin) uses the stack, which is memory of each thread.
//
// The kernel itself must not use it. The functions that it calls may do so on entry and exit, to save some registers of
// their caller once for each portion of a move, but not within a loop. ptxas counts all of these as spills, so its
// report does not distinguish them.
//
// The test reads only loads and stores of the stack and branches. Their encoding is the same on all processors from
// sm_75 on, except for the distance of a branch. A loop is the code between the target of a backward branch and the
// branch.

#include <elf.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace axccl::kernels {
namespace {

struct Instruction {
  uint64_t low, high;

  uint32_t Operation() const { return low & 0xfff; }
  bool IsBranch() const { return Operation() == 0x947; }
  bool LoadsStack() const { return Operation() == 0x983; }
  bool StoresStack() const { return Operation() == 0x387 || Operation() == 0x987; }

  // The distance of a branch, in bytes from the next instruction.
  int64_t Distance(int arch) const {
    // 50 bits at bit 32, in bytes; since sm_90 the upper bits at bit 34 and the 8 lower ones at bit 16, in words.
    const uint64_t upper = low >> 34 | (high & 0x3ffff) << 30;
    const uint64_t bits =
        arch >= 90 ? (upper << 8 | (low >> 16 & 0xff)) << 2 : (low >> 32 | (high & 0x3ffff) << 32) & ~15ull;
    const int unused = arch >= 90 ? 64 - 58 : 64 - 50;
    return static_cast<int64_t>(bits << unused) >> unused;
  }
};

struct Function {
  std::string name;
  std::vector<Instruction> code;
};

std::vector<Function> FunctionsOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), bytes.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  std::vector<Function> functions;
  for (const Elf64_Shdr& section : sections) {
    const std::string name = bytes.data() + sections[header.e_shstrndx].sh_offset + section.sh_name;
    if (name.rfind(".text.", 0) != 0) continue;
    std::vector<Instruction> code(section.sh_size / sizeof(Instruction));
    std::memcpy(code.data(), bytes.data() + section.sh_offset, section.sh_size);
    functions.push_back({name.substr(6), std::move(code)});
  }
  return functions;
}

// For each instruction, whether it is in a loop.
std::vector<bool> Looped(const Function& function, int arch) {
  std::vector<bool> looped(function.code.size());
  for (size_t i = 0; i < function.code.size(); ++i) {
    if (!function.code[i].IsBranch()) continue;
    const int64_t distance = function.code[i].Distance(arch), target = static_cast<int64_t>(i) + 1 + distance / 16;
    EXPECT_EQ(distance % 16, 0) << function.name << ", instruction " << i;
    EXPECT_TRUE(0 <= target && target < static_cast<int64_t>(function.code.size()))
        << function.name << ", instruction " << i;
    if (distance % 16 != 0 || target < 0) continue;
    for (auto at = static_cast<size_t>(target); at <= i; ++at) looped[at] = true;
  }
  return looped;
}

void Check(const std::filesystem::path& path, int arch) {
  size_t accesses = 0, kernels = 0, loops = 0;
  for (const Function& function : FunctionsOf(path)) {
    const std::vector<bool> looped = Looped(function, arch);
    size_t own = 0, within = 0;
    for (size_t i = 0; i < function.code.size(); ++i) {
      const Instruction& instruction = function.code[i];
      loops += looped[i] && instruction.IsBranch();
      if (!instruction.LoadsStack() && !instruction.StoresStack()) continue;
      ++own;
      within += looped[i];
    }
    EXPECT_EQ(within, 0u) << "sm_" << arch << ": " << function.name << " keeps registers on the stack within a loop";
    accesses += own;
    if (function.name != "axccl_run" && function.name != "axccl_run_one") continue;
    ++kernels;
    EXPECT_EQ(own, 0u) << "sm_" << arch << ": the kernel keeps registers on the stack";
  }
  // The file has the kernels that the test is for.
  EXPECT_EQ(kernels, 2u) << path;
  EXPECT_GT(accesses, 1000u) << path;
  EXPECT_GT(loops, 300u) << path;
}

TEST(CudaStack, IsNotTouchedByLoops) {
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FOLDER)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".cubin") continue;
    Check(entry.path(), std::stoi(name.substr(name.find('.') + 1)));
    ++checked;
  }
  EXPECT_GE(checked, 2);
}

}  // namespace
}  // namespace axccl::kernels
