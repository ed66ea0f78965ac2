// Memory of devices that one process exports and another imports, on the software GPU.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/device/cuda/device.h"
#include "tests/harness/residue.h"
#include "tests/harness/run_ranks.h"
#include "tests/harness/timing.h"
#include "tests/transports/is_mapped.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/handle.h"
#include "transports/cuda_ipc/imports.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using test::IsMapped;

constexpr size_t kWords = 1000, kBytes = kWords * sizeof(uint32_t);

void Write(const Device& device, CUdeviceptr to, uint32_t value) {
  const std::vector<uint32_t> words(kWords, value);
  ASSERT_TRUE(device.Upload(to, words.data(), kBytes).ok());
}

// The number of words that equal `value`.
size_t Count(const Device& device, CUdeviceptr from, uint32_t value) {
  const Scope scope(device);
  std::vector<uint32_t> words(kWords);
  EXPECT_EQ(Driver::Loaded().cuMemcpyDtoHAsync(words.data(), from, kBytes, device.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Driver::Loaded().cuStreamSynchronize(device.stream()), CUDA_SUCCESS);
  size_t count = 0;
  for (const uint32_t word : words) count += word == value;
  return count;
}

Device* DeviceOf(const RankContext& context) {
  const Result<Device*> device = Device::Get(context.rank());
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.value();
}

// Rank 0 exports a pointer into the middle of what `allocate` returns; rank 1, on another device, reads and writes it.
void ExpectShared(RankContext& context, Handle::Kind kind, const Memory& memory, const Device& device) {
  if (context.rank() == 0) {
    const CUdeviceptr middle = memory.address + kBytes;
    const Result<Range> range = RangeOf(device, middle);
    ASSERT_TRUE(range.ok()) << range.status().message();
    EXPECT_EQ(range.value().base, memory.address);
    EXPECT_GE(range.value().bytes, 3 * kBytes);
    Result<Exported> exported = Export(device, range.value());
    ASSERT_TRUE(exported.ok()) << exported.status().message();
    EXPECT_EQ(exported.value().handle.kind, kind);
    Write(device, middle, 42);
    std::memcpy(context.board(), &exported.value().handle, sizeof(Handle));
    ASSERT_TRUE(context.Barrier(0));
    ASSERT_TRUE(context.Barrier(1));
    EXPECT_EQ(Count(device, middle, 43), kWords);
    ASSERT_TRUE(context.Barrier(2));
    return;
  }
  ASSERT_TRUE(context.Barrier(0));
  Handle handle;
  std::memcpy(&handle, context.board(), sizeof(handle));
  const Result<Imported> imported = Import(device, handle);
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_EQ(Count(device, imported.value().address + kBytes, 42), kWords);
  Write(device, imported.value().address + kBytes, 43);
  ASSERT_TRUE(context.Barrier(1));
  ASSERT_TRUE(context.Barrier(2));
  Close(device, imported.value());
  EXPECT_FALSE(IsMapped(device, imported.value().address));
}

// Addresses that refer to other memory each time, of one allocation or several.
class Place {
 public:
  static constexpr size_t kPlaceBytes = size_t{2} << 20;

  explicit Place(const Device& device, size_t allocations = 1) : device_(device), filled_(allocations) {
    const Scope scope(device);
    EXPECT_EQ(Driver::Loaded().cuMemAddressReserve(&address_, allocations * kPlaceBytes, 0, 0, 0), CUDA_SUCCESS);
  }

  // Replaces an allocation; the words of its second kBytes are `value`.
  void Renew(uint32_t value, size_t allocation = 0) {
    const Scope scope(device_);
    const CUmemAllocationProp properties = ShareableOn(device_);
    CUmemGenericAllocationHandle object = 0;
    ASSERT_EQ(Driver::Loaded().cuMemCreate(&object, kPlaceBytes, &properties, 0), CUDA_SUCCESS);
    Map(allocation, object);
    Write(device_, AddressOf(allocation) + kBytes, value);
  }
  // Puts the memory of another one there.
  void Repeat(size_t allocation, size_t other) {
    CUmemGenericAllocationHandle object = 0;
    void* const there = reinterpret_cast<void*>(AddressOf(other));
    ASSERT_EQ(Driver::Loaded().cuMemRetainAllocationHandle(&object, there), CUDA_SUCCESS);
    Map(allocation, object);
  }
  CUdeviceptr address() const { return address_; }
  CUdeviceptr AddressOf(size_t allocation) const { return address_ + allocation * kPlaceBytes; }

 private:
  void Map(size_t allocation, CUmemGenericAllocationHandle object) {
    const Driver& driver = Driver::Loaded();
    const Scope scope(device_);
    const CUdeviceptr at = AddressOf(allocation);
    if (filled_[allocation]) {
      ASSERT_EQ(driver.cuMemUnmap(at, kPlaceBytes), CUDA_SUCCESS);
    }
    ASSERT_EQ(driver.cuMemMap(at, kPlaceBytes, 0, object, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver.cuMemRelease(object), CUDA_SUCCESS);
    filled_[allocation] = true;
    CUmemAccessDesc access{};
    access.location = ShareableOn(device_).location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ASSERT_EQ(driver.cuMemSetAccess(at, kPlaceBytes, &access, 1), CUDA_SUCCESS);
  }

  const Device& device_;
  CUdeviceptr address_ = 0;
  std::vector<bool> filled_;
};

RunOptions With(std::vector<std::pair<std::string, std::string>> environment) {
  RunOptions options;
  options.environment = std::move(environment);
  options.environment.emplace_back("SOFTGPU_DEVICES", "2");
  return options;
}

TEST(Shared, MemoryOfTheApplication) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        Memory memory;
        if (context.rank() == 0) memory.address = device->Allocate(3 * kBytes).value();
        ExpectShared(context, Handle::kLegacy, memory, *device);
      },
      With({}));
}

TEST(Shared, MemoryOfTheLibrary) {
  const std::vector<std::pair<std::string, std::string>> none, no_vmm{{"SOFTGPU_VMM", "0"}},
      no_ipc{{"SOFTGPU_IPC", "0"}};
  for (const auto& obstacles : {none, no_ipc, no_vmm}) {
    const bool mapped = obstacles != no_vmm;
    const auto body = [mapped](RankContext& context) {
      const Device* const device = DeviceOf(context);
      const Result<Memory> memory = Allocate(*device, 3 * kBytes);
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      EXPECT_EQ(Count(*device, memory.value().address, 0), kWords);
      ExpectShared(context, mapped ? Handle::kFile : Handle::kLegacy, memory.value(), *device);
      Free(*device, memory.value());
    };
    RunRanks(harness::Processes(2), body, With(obstacles));
  }
}

// Several allocations that follow each other are shared as one, from any place to any other.
TEST(Shared, AllocationsThatFollowEachOther) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        constexpr size_t kAllocations = 3, kOffset = Place::kPlaceBytes - kBytes / 2;
        constexpr uint64_t kLength = Place::kPlaceBytes + kBytes;
        if (context.rank() == 0) {
          Place place(*device, kAllocations);
          for (size_t i = 0; i < kAllocations; ++i) place.Renew(7, i);
          Write(*device, place.address() + kOffset, 42);                       // over the first boundary
          Write(*device, place.address() + kOffset + Place::kPlaceBytes, 43);  // and over the second
          const Result<Range> range = RangeOf(*device, place.address() + kOffset, kLength);
          ASSERT_TRUE(range.ok()) << range.status().message();
          EXPECT_EQ(range.value().base, place.address());
          EXPECT_EQ(range.value().bytes, kAllocations * Place::kPlaceBytes);
          EXPECT_EQ(range.value().parts.size(), kAllocations);
          const Result<Exported> exported = Export(*device, range.value());
          ASSERT_TRUE(exported.ok()) << exported.status().message();
          std::memcpy(context.board(), &exported.value().handle, sizeof(Handle));
          ASSERT_TRUE(context.Barrier(0));
          ASSERT_TRUE(context.Barrier(1));
          EXPECT_EQ(Count(*device, place.address() + kOffset, 44), kWords);
          EXPECT_EQ(Count(*device, place.address() + kOffset + Place::kPlaceBytes, 43), kWords);
          return;
        }
        ASSERT_TRUE(context.Barrier(0));
        Handle handle;
        std::memcpy(&handle, context.board(), sizeof(handle));
        const int descriptors = harness::Entries("/proc/self/fd");
        for (int round = 0; round < 3; ++round) {
          const Result<Imported> imported = Import(*device, handle);
          ASSERT_TRUE(imported.ok()) << imported.status().message();
          const CUdeviceptr at = imported.value().address + kOffset;
          EXPECT_EQ(Count(*device, at, round == 0 ? 42 : 44), kWords);
          EXPECT_EQ(Count(*device, at + Place::kPlaceBytes, 43), kWords);
          Write(*device, at, 44);
          Close(*device, imported.value());
          for (size_t i = 0; i < kAllocations; ++i)
            EXPECT_FALSE(IsMapped(*device, imported.value().address + i * Place::kPlaceBytes));
        }
        Handle longer = handle;
        longer.bytes += Place::kPlaceBytes;
        const Result<Imported> wrong = Import(*device, longer);
        ASSERT_FALSE(wrong.ok());
        EXPECT_NE(wrong.status().message().find("the list of allocations"), std::string::npos);
        EXPECT_EQ(harness::Entries("/proc/self/fd"), descriptors);
        ASSERT_TRUE(context.Barrier(1));
      },
      With({}));
}

// CUDA does not tell which part of an object is mapped where, so two mappings of one cannot be told apart.
TEST(Export, RefusesAnObjectThatIsThereTwice) {
  RunRanks(
      harness::Processes(1),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        Place place(*device, 2);
        place.Renew(1, 0);
        place.Repeat(1, 0);
        const Result<Exported> exported =
            Export(*device, RangeOf(*device, place.address(), 2 * Place::kPlaceBytes).value());
        ASSERT_FALSE(exported.ok());
        EXPECT_NE(exported.status().message().find("mapped twice"), std::string::npos) << exported.status().message();
      },
      With({}));
}

TEST(Allocate, GivesBackWhatItTook) {
  RunRanks(
      harness::Processes(1),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        const Scope scope(*device);
        size_t before = 0, after = 0, total = 0;
        ASSERT_EQ(Driver::Loaded().cuMemGetInfo(&before, &total), CUDA_SUCCESS);
        for (int i = 0; i < 10; ++i) {
          const Result<Memory> memory = Allocate(*device, kBytes);
          ASSERT_TRUE(memory.ok());
          Free(*device, memory.value());
        }
        ASSERT_EQ(Driver::Loaded().cuMemGetInfo(&after, &total), CUDA_SUCCESS);
        EXPECT_EQ(after, before);
      },
      With({}));
}

// Memory that is freed and allocated again, perhaps at the same address, is another allocation.
TEST(RangeOf, DistinguishesAllocations) {
  RunRanks(
      harness::Processes(1),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        uint64_t last = 0;
        for (int i = 0; i < 10; ++i) {
          const CUdeviceptr memory = device->Allocate(kBytes).value();
          const uint64_t id = RangeOf(*device, memory).value().id;
          EXPECT_EQ(RangeOf(*device, memory + kBytes - 1).value().id, id);
          EXPECT_NE(id, last);
          last = id;
          device->Free(memory);
        }
      },
      With({}));
}

TEST(Export, NamesWhatCannotBeShared) {
  RunRanks(
      harness::Processes(1),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        const CUdeviceptr memory = device->Allocate(kBytes).value();
        const Result<Exported> exported = Export(*device, RangeOf(*device, memory).value());
        ASSERT_FALSE(exported.ok());
        EXPECT_NE(exported.status().message().find("cuIpcGetMemHandle failed"), std::string::npos)
            << exported.status().message();
        EXPECT_FALSE(RangeOf(*device, reinterpret_cast<CUdeviceptr>(&memory)).ok());
        device->Free(memory);
      },
      With({{"SOFTGPU_IPC", "0"}}));
}

// Import fails at once, whatever a handle contains.
TEST(Import, NamesTheReasonOfAFailure) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        const Device* const device = DeviceOf(context);
        if (context.rank() == 0) {
          Handle handles[4];
          const CUdeviceptr freed = device->Allocate(kBytes).value();
          handles[0] = Export(*device, RangeOf(*device, freed).value()).value().handle;
          device->Free(freed);
          const Memory memory = Allocate(*device, kBytes).value();
          Exported exported = Export(*device, RangeOf(*device, memory.address).value()).value();
          handles[1] = handles[2] = exported.handle;
          const shm::OfferedFile other =
              shm::OfferedFile::Make(service::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC))).value();
          std::memcpy(handles[2].key.data(), &other.address(), sizeof(other.address()));
          handles[3] = exported.handle;
          exported.file.Close();
          std::memcpy(context.board(), handles, sizeof(handles));
          ASSERT_TRUE(context.Barrier(0));
          ASSERT_TRUE(context.Barrier(1));
          Free(*device, memory);
          return;
        }
        ASSERT_TRUE(context.Barrier(0));
        Handle handles[4];
        std::memcpy(handles, context.board(), sizeof(handles));
        const auto reason = [&](const Handle& handle) {
          const Result<Imported> imported = Import(*device, handle);
          EXPECT_FALSE(imported.ok());
          return std::string(imported.status().message());
        };
        EXPECT_NE(reason(handles[0]).find("cuIpcOpenMemHandle failed"), std::string::npos);
        EXPECT_NE(reason(handles[1]).find("it refused"), std::string::npos) << "it offers the file no more";
        EXPECT_NE(reason(handles[2]).find("cuMemImportFromShareableHandle failed"), std::string::npos)
            << reason(handles[2]);
        handles[3].key[0] ^= 1;  // of the name of its socket
        EXPECT_NE(reason(handles[3]).find("the process is gone"), std::string::npos) << reason(handles[3]);
        EXPECT_NE(reason(Handle{}).find("cannot share it"), std::string::npos);
        ASSERT_TRUE(context.Barrier(1));
      },
      With({}));
}

// ---- tables ----

std::vector<ExportTable*> TablesOf(const RankContext& context) {
  std::vector<ExportTable*> tables;
  for (size_t rank = 0; rank < 2; ++rank)
    tables.push_back(reinterpret_cast<ExportTable*>(context.board() + rank * (RankContext::kBoardBytes / 2)));
  return tables;
}

// Returns the word of a rank's map.
CUdeviceptr MapWord(const Device& device, const Imports& imports, uint32_t number) {
  const Scope scope(device);
  CUdeviceptr word = 0;
  EXPECT_EQ(Driver::Loaded().cuMemcpyDtoHAsync(&word, imports.maps_of(0) + number * sizeof(word), sizeof(word),
                                               device.stream()),
            CUDA_SUCCESS);
  EXPECT_EQ(Driver::Loaded().cuStreamSynchronize(device.stream()), CUDA_SUCCESS);
  return word;
}

// Addresses of freed memory that refer to new memory are another allocation. It is unusable until the peer has imported
// it, and has another number until the peer has released the first allocation.
TEST(Tables, ReusedAddresses) {
  const auto body = [](RankContext& context) {
    const Device* const device = DeviceOf(context);
    constexpr uint32_t kNumbers[] = {1, 2, 1};
    if (context.rank() == 0) {
      Exports exports(*device, 0, TablesOf(context));
      Place place(*device);
      for (uint32_t round = 0; round < 3; ++round) {
        place.Renew(100 + round);
        const Exports::Place found = exports.Find(place.address() + kBytes, kBytes);
        EXPECT_EQ(found.number, kNumbers[round]) << round;
        EXPECT_EQ(found.offset, kBytes);
        EXPECT_FALSE(exports.Has(1, found.number)) << round;
        EXPECT_TRUE(exports.Has(0, found.number));
        EXPECT_EQ(exports.Find(place.address() + Place::kPlaceBytes - 8, 16).number, 0u) << "beyond its end";
        ASSERT_TRUE(context.Barrier());
        ASSERT_TRUE(context.Barrier());
        EXPECT_EQ(exports.Find(place.address(), kBytes).number, found.number);
        EXPECT_TRUE(exports.Has(1, found.number)) << round;
      }
      return;
    }
    const std::vector<ExportTable*> tables = TablesOf(context);
    std::unique_ptr<Imports> imports;
    for (uint32_t round = 0; round < 3; ++round) {
      ASSERT_TRUE(context.Barrier());
      const uint32_t peer = tables[0]->entries[1].handle.pid;
      if (round == 0) imports = Imports::Create(*device, 1, {{tables[0], peer, false}, {tables[1], 0, true}}).value();
      const CUdeviceptr before = round == 0 ? 0 : MapWord(*device, *imports, kNumbers[round - 1]);
      ASSERT_TRUE(imports->Look().ok());
      // The peer releases freed memory asynchronously.
      while (round != 0 && IsMapped(*device, before)) harness::LookLater();
      EXPECT_EQ(Count(*device, MapWord(*device, *imports, kNumbers[round]) + kBytes, 100 + round), kWords) << round;
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(harness::Processes(2), body, With({}));
}

// Buffers in other allocations have other numbers, although they overlap; where one of these is replaced, what was
// known of it is not used.
TEST(Tables, AllocationsThatFollowEachOther) {
  const auto body = [](RankContext& context) {
    const Device* const device = DeviceOf(context);
    const std::vector<ExportTable*> tables = TablesOf(context);
    constexpr uint64_t kAcross = Place::kPlaceBytes + kBytes;
    if (context.rank() == 0) {
      Exports exports(*device, 0, tables);
      Place place(*device, 3);
      for (size_t i = 0; i < 3; ++i) place.Renew(100 + static_cast<uint32_t>(i), i);
      EXPECT_EQ(exports.Find(place.AddressOf(0) + kBytes, kAcross).number, 1u);
      EXPECT_EQ(exports.Find(place.AddressOf(1) + kBytes, kAcross).number, 2u);
      EXPECT_EQ(exports.Find(place.AddressOf(1), kBytes).number, 3u);
      EXPECT_EQ(exports.Find(place.AddressOf(0), 2 * kAcross).number, 4u);
      EXPECT_EQ(exports.Find(place.AddressOf(0), kAcross).number, 1u);
      EXPECT_EQ(exports.Find(place.AddressOf(2), kAcross).number, 0u) << "beyond the end";
      EXPECT_EQ(exports.Hold(place.AddressOf(2), kBytes).value().number, 5u);
      ASSERT_TRUE(context.Barrier());
      ASSERT_TRUE(context.Barrier());
      for (uint32_t number = 1; number <= 5; ++number) EXPECT_TRUE(exports.Has(1, number)) << number;
      place.Renew(200, 2);
      EXPECT_EQ(exports.Find(place.AddressOf(0), 2 * kAcross).number, 6u);
      EXPECT_EQ(exports.Find(place.AddressOf(1), kAcross).number, 7u);
      EXPECT_EQ(exports.Find(place.AddressOf(0), kAcross).number, 1u);
      exports.LetGo(place.AddressOf(1));  // in 1, 3, 6 and 7
      EXPECT_EQ(tables[0]->entries[1].generation.load(), 0u);
      EXPECT_EQ(tables[0]->entries[7].generation.load(), 0u);
      EXPECT_EQ(exports.Find(place.AddressOf(1), kAcross).number, 6u) << "nobody knows the other one";
      ASSERT_TRUE(context.Barrier());
      ASSERT_TRUE(context.Barrier());
      return;
    }
    ASSERT_TRUE(context.Barrier());
    const uint32_t peer = tables[0]->entries[1].handle.pid;
    const auto imports = Imports::Create(*device, 1, {{tables[0], peer, false}, {tables[1], 0, true}}).value();
    ASSERT_TRUE(imports->Look().ok());
    EXPECT_EQ(Count(*device, MapWord(*device, *imports, 4) + 2 * Place::kPlaceBytes + kBytes, 102), kWords);
    ASSERT_TRUE(context.Barrier());
    ASSERT_TRUE(context.Barrier());
    ASSERT_TRUE(imports->Look().ok());
    EXPECT_EQ(Count(*device, MapWord(*device, *imports, 6) + kBytes, 101), kWords);
    EXPECT_EQ(Count(*device, MapWord(*device, *imports, 6) + Place::kPlaceBytes + kBytes, 200), kWords);
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, With({}));
}

// A rank answers if it cannot import memory; a process that offers another process's memory is refused.
TEST(Tables, AnswersOfRanksThatCannotImport) {
  const auto body = [](RankContext& context) {
    const Device* const device = DeviceOf(context);
    const std::vector<ExportTable*> tables = TablesOf(context);
    if (context.rank() == 0) {
      Exports exports(*device, 0, tables);
      const CUdeviceptr memory = device->Allocate(kBytes).value();
      const Exports::Place found = exports.Find(memory, kBytes);
      EXPECT_EQ(found.number, 1u);
      ASSERT_TRUE(context.Barrier());
      ASSERT_TRUE(context.Barrier());
      EXPECT_FALSE(exports.Has(1, found.number));
      EXPECT_EQ(tables[1]->Answer(0, 1)->load(), 2u);
      device->Free(memory);
      return;
    }
    ASSERT_TRUE(context.Barrier());
    const auto imports = Imports::Create(*device, 1, {{tables[0], 1, false}, {tables[1], 0, true}});
    ASSERT_TRUE(imports.ok());
    EXPECT_TRUE(imports.value()->Look().ok());
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, With({}));
}

}  // namespace
}  // namespace axccl::cuda_ipc
