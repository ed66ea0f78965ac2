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
#include <vector>

#include "tests/api/nccl_symbols.h"

namespace axccl::test {
namespace {

struct Symbol {
  std::string address;
  char type = 0;  // as nm prints it: T strong, W weak
};

constexpr char kAxccl[] = AXCCL_TEST_LIBRARY, kNccl[] = AXCCL_TEST_DROPIN "/libnccl.so.2";

std::vector<std::string> LinesOf(const std::string& command) {
  std::vector<std::string> lines;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  char line[4096];
  while (fgets(line, sizeof(line), pipe) != nullptr) lines.emplace_back(line);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return lines;
}

std::map<std::string, Symbol> ReadSymbols(const std::string& path) {
  std::map<std::string, Symbol> symbols;
  for (const std::string& line : LinesOf("nm -D --defined-only '" + path + "'")) {
    std::istringstream in(line);
    Symbol symbol;
    std::string name;
    in >> symbol.address >> symbol.type >> name;
    symbols[name] = symbol;
  }
  return symbols;
}

// The values that readelf prints for "NEEDED", "SONAME" and so on, between the brackets.
std::set<std::string> ReadDynamic(const std::string& path, const std::string& tag) {
  std::set<std::string> values;
  for (const std::string& line : LinesOf("readelf -dW '" + path + "'")) {
    const size_t open = line.find('['), close = line.find(']');
    if (line.find("(" + tag + ")") != std::string::npos && close != std::string::npos)
      values.insert(line.substr(open + 1, close - open - 1));
  }
  return values;
}

template <class Entry>
std::vector<Entry> ReadTable(std::ifstream* file, uint64_t offset, uint64_t bytes) {
  std::vector<Entry> entries(bytes / sizeof(Entry));
  file->seekg(static_cast<std::streamoff>(offset));
  file->read(reinterpret_cast<char*>(entries.data()), static_cast<std::streamsize>(entries.size() * sizeof(Entry)));
  EXPECT_TRUE(*file) << AXCCL_TEST_LIBRARY " ends early";
  return entries;
}

// Programs (src/program) are for tools: the library has none of their code, hidden or not.
TEST(Symbols, OfProgramsAreNotInTheLibrary) {
  int of_program = 0, of_comm = 0;
  for (const std::string& line : LinesOf(std::string("nm --defined-only '") + kAxccl + "'")) {
    of_program += line.find("5axccl7program") != std::string::npos;
    of_comm += line.find("5axccl4comm") != std::string::npos;
  }
  EXPECT_EQ(of_program, 0);
  EXPECT_GT(of_comm, 0) << "the library has been stripped";
}

// Thread-locals are static, which is fast, but dlopen has little room for static ones in a program (1664 bytes with
// glibc, for all libraries together). With more, Python and other programs cannot load the library.
TEST(Symbols, ThreadLocalsLeaveRoomForDlopen) {
  std::ifstream file(AXCCL_TEST_LIBRARY, std::ios::binary);
  const Elf64_Ehdr header = ReadTable<Elf64_Ehdr>(&file, 0, sizeof(Elf64_Ehdr))[0];
  for (const Elf64_Phdr& segment : ReadTable<Elf64_Phdr>(&file, header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr)))
    EXPECT_TRUE(segment.p_type != PT_TLS || segment.p_memsz <= 512) << segment.p_memsz << " bytes";
}

bool IsStaticThreadLocal(uint32_t machine, uint64_t type) {
  return (machine == EM_X86_64 && type == R_X86_64_TPOFF64) || (machine == EM_AARCH64 && type == R_AARCH64_TLS_TPREL);
}

// dlopen refuses a static relocation to a thread-local of another library (libstdc++ has them for std::call_once) if
// that library was loaded late and the thread-local is in use, which is always so after `import torch`.
TEST(Symbols, ThreadLocalsOfOthersAreNotStatic) {
  std::ifstream file(AXCCL_TEST_LIBRARY, std::ios::binary);
  const Elf64_Ehdr header = ReadTable<Elf64_Ehdr>(&file, 0, sizeof(Elf64_Ehdr))[0];
  int own = 0;
  const auto sections = ReadTable<Elf64_Shdr>(&file, header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_RELA) continue;
    const Elf64_Shdr& table = sections.at(section.sh_link);
    const auto symbols = ReadTable<Elf64_Sym>(&file, table.sh_offset, table.sh_size);
    for (const Elf64_Rela& relocation : ReadTable<Elf64_Rela>(&file, section.sh_offset, section.sh_size)) {
      if (!IsStaticThreadLocal(header.e_machine, ELF64_R_TYPE(relocation.r_info))) continue;
      const auto number = ELF64_R_SYM(relocation.r_info);
      EXPECT_TRUE(number == 0 || symbols.at(number).st_shndx != SHN_UNDEF)
          << "at offset " << relocation.r_offset << ", to a thread-local of another library (see readelf -rW)";
      ++own;
    }
  }
  EXPECT_GT(own, 0) << "the test finds no thread-locals any more";
}

TEST(Symbols, EveryFunctionIsAPairAtOneAddress) {
  for (const char* library : {kAxccl, kNccl}) {
    std::map<std::string, Symbol> symbols = ReadSymbols(library);
    for (const char* function : kNcclFunctions) {
      const Symbol weak = symbols[std::string("nccl") + function], strong = symbols[std::string("pnccl") + function];
      EXPECT_EQ(weak.type, 'W') << "nccl" << function << " in " << library;
      EXPECT_EQ(strong.type, 'T') << "pnccl" << function << " in " << library;
      EXPECT_EQ(weak.address, strong.address) << function << " in " << library;
    }
  }
}

TEST(Symbols, NothingElseIsExported) {
  std::set<std::string> expected;
  for (const char* function : kNcclFunctions) {
    expected.insert(std::string("nccl") + function);
    expected.insert(std::string("pnccl") + function);
  }
  for (const char* library : {kAxccl, kNccl}) {
    for (const auto& [name, symbol] : ReadSymbols(library)) {
      if (library == kAxccl && name.starts_with("axccl")) {
        EXPECT_EQ(symbol.type, 'T') << name;
      } else {
        EXPECT_TRUE(expected.contains(name)) << name << " (" << symbol.type << ") is exported by " << library;
      }
    }
  }
}

using Names = std::set<std::string>;

#ifdef AXCCL_TEST_MALLOC
// Preloaded into programs of every kind, it needs the C library alone, and has no names that could be theirs.
TEST(Symbols, PreloadedMallocIsTheMallocFamily) {
  Names exported;
  for (const auto& [name, symbol] : ReadSymbols(AXCCL_TEST_MALLOC)) exported.insert(name);
  EXPECT_EQ(exported, (Names{"aligned_alloc", "axccl_malloc_attach_2", "calloc", "free", "malloc", "malloc_trim",
                             "malloc_usable_size", "memalign", "posix_memalign", "pvalloc", "realloc", "valloc"}));
  EXPECT_EQ(ReadDynamic(AXCCL_TEST_MALLOC, "SONAME"), Names{"libaxccl-malloc.so.0"});
  EXPECT_EQ(ReadDynamic(AXCCL_TEST_MALLOC, "NEEDED"), Names{"libc.so.6"});
}
#endif

// The code exists once. libnccl.so.2 finds it relative to its own path, and programs that were linked with libnccl.so.2
// need nothing else, so they also run on NVIDIA's.
TEST(Symbols, DropInIsASeparateLibrary) {
  EXPECT_EQ(ReadDynamic(kNccl, "SONAME"), Names{"libnccl.so.2"});
  EXPECT_EQ(ReadDynamic(kAxccl, "SONAME"), Names{"libaxccl.so.0"});
  EXPECT_TRUE(ReadDynamic(kNccl, "NEEDED").contains("libaxccl.so.0"));
  const Names places = ReadDynamic(kNccl, "RPATH");
  ASSERT_EQ(places.size(), 1u);
  for (std::istringstream in(*places.begin()); !in.eof();) {
    std::string place;
    std::getline(in, place, ':');
    EXPECT_TRUE(place.starts_with("$ORIGIN/")) << *places.begin();
  }
  const Names needed = ReadDynamic(AXCCL_TEST_BUILT_FOR_NCCL, "NEEDED");
  EXPECT_TRUE(needed.contains("libnccl.so.2"));
  EXPECT_FALSE(needed.contains("libaxccl.so.0"));
}

// Finds them as the loaders of IREE, JAX and vLLM do.
TEST(Symbols, DropInLoads) {
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
