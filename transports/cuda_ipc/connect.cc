#include "transports/cuda_ipc/connect.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "src/base/hash.h"
#include "src/base/service_fd.h"
#include "transports/cuda_ipc/exports.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

// The bytes at `test_at` in a block: the pattern that peers read, room for what is read of theirs, and a mark of each
// peer.
constexpr size_t kPatternWords = 512, kMarkWords = 8;
constexpr uint64_t kPatternBytes = kPatternWords * sizeof(uint64_t), kMarkBytes = kMarkWords * sizeof(uint64_t);

// For a block that cannot be opened yet.
constexpr std::chrono::seconds kPatience(1);
constexpr std::chrono::milliseconds kPause(5);

std::vector<uint64_t> PatternOf(const BlockAddress& address, size_t rank) {
  std::vector<uint64_t> words(kPatternWords);
  uint64_t hash = Mix(kHashSeed, address.number + rank);
  for (uint64_t& word : words) word = hash = Mix(hash, kHashSeed);
  return words;
}

// Whether the rank is on another machine.
bool IsFar(const transport::Reach& host) { return host.inbox() != nullptr; }

uint64_t RandomNumber() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
    number = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return number;
}

}  // namespace

uint64_t TestBytes(size_t ranks) { return 2 * kPatternBytes + ranks * kMarkBytes; }

Blocks::~Blocks() {
  Unmap();
  Release(&own_);
  Release(&former_);
}

void Blocks::Release(Memory* memory) {
  if (memory->address != 0) Free(device_, std::exchange(*memory, {}));
}

CUdeviceptr Blocks::MarkIn(CUdeviceptr block, size_t rank) const {
  return block + test_at_ + 2 * kPatternBytes + rank * kMarkBytes;
}

// Exports by a legacy handle, or as a file if that fails. If processes cannot share memory at all, ranks of one process
// still work.
Status Blocks::Allocate() {
  AXCCL_ASSIGN_OR_RETURN(own_.address, device_.Allocate(bytes_));
  Result<Exported> exported = Export(device_, Range{own_.address, bytes_, 0});
  if (!exported.ok()) {
    not_exported_ = exported.status();
    Release(&own_);
    AXCCL_ASSIGN_OR_RETURN(own_, cuda_ipc::Allocate(device_, bytes_));
    exported = Export(device_, Range{own_.address, own_.mapped, 0});
  }
  if (exported.ok()) Exports::RetireGone(Range{own_.address, bytes_, 0});
  return Present(&exported);
}

Status Blocks::AllocateAsFile() {
  Result<Memory> memory = own_.mapped != 0 ? Memory() : AllocateMapped(device_, bytes_);
  Result<Exported> exported = MakeStatus(Code::kInvalidUsage, "the block stays");
  if (memory.ok() && memory.value().address != 0) {
    exported = Export(device_, Range{memory.value().address, memory.value().mapped, 0});
    if (!exported.ok()) Release(&memory.value());
  }
  if (exported.ok()) former_ = std::exchange(own_, memory.value());
  AXCCL_RETURN_IF_ERROR(device_.Clear(own_.address, own_.mapped != 0 ? own_.mapped : bytes_));  // peers have left marks
  return Present(&exported);
}

// What peers get to know of this rank's block, and the data that they look for in it.
Status Blocks::Present(Result<Exported>* exported) {
  if (exported->ok()) {
    not_exported_ = Status();
    address_.handle = exported->value().handle;
    file_ = std::move(exported->value().file);
  }
  address_.pointer = own_.address;
  address_.number = RandomNumber();
  address_.device = device_.ordinal();
  std::memcpy(address_.uuid.data(), device_.uuid().bytes, address_.uuid.size());
  const std::vector<uint64_t> pattern = PatternOf(address_, static_cast<size_t>(rank_));
  return device_.Upload(own_.address + test_at_, pattern.data(), kPatternBytes);
}

Status Blocks::Map(const std::vector<BlockAddress>& addresses, const Hosts& hosts) {
  const Scope scope(device_);
  Release(&former_);
  addresses_ = addresses;
  const bool one_process =
      std::all_of(hosts.begin(), hosts.end(), [](const auto* host) { return host->same_process() || IsFar(*host); });
  if (!not_exported_.ok() && !one_process)
    return MakeStatus(
        Code::kUnhandledCudaError, "rank %d cannot share memory of CUDA device %d with other processes: %.*s", rank_,
        device_.ordinal(), static_cast<int>(not_exported_.message().size()), not_exported_.message().data());
  on_device_.resize(addresses.size());
  for (size_t rank = 0; rank < addresses.size(); ++rank) {
    if (IsFar(*hosts[rank])) continue;
    AXCCL_RETURN_IF_ERROR(Open(rank, *hosts[rank]));
    AXCCL_RETURN_IF_ERROR(Mark(rank));
  }
  return Check(Driver::Loaded().cuStreamSynchronize(device_.stream()), "cuStreamSynchronize");
}

Status Blocks::Open(size_t rank, const transport::Reach& host) {
  Result<std::unique_ptr<Reach>> reach = Reach::Open(device_, host, addresses_[rank]);
  // Another communicator here still has memory open that was there before. It looks for what peers have freed, too.
  const auto deadline = service::Clock::now() + kPatience;
  while (reach.status().code() == Code::kInProgress && service::Clock::now() < deadline) {
    service::PollUntil(-1, 0, service::Clock::now() + kPause, {});
    reach = Reach::Open(device_, host, addresses_[rank]);
  }
  if (reach.ok()) {
    on_device_[rank] = std::move(reach).value();
    return Status();
  }
  const Status status = reach.status();
  return MakeStatus(Code::kUnhandledCudaError,
                    "rank %d on CUDA device %d cannot reach the memory of rank %zu (device %d%s): %s", rank_,
                    device_.ordinal(), rank, addresses_[rank].device, host.same_process() ? "" : " of another process",
                    std::string(status.message()).c_str());
}

// Leaves this rank's mark, the beginning of its own test bytes, in the block of `rank`.
Status Blocks::Mark(size_t rank) const {
  return Check(Driver::Loaded().cuMemcpyAsync(MarkIn(on_device_[rank]->address(), static_cast<size_t>(rank_)),
                                              own_.address + test_at_, kMarkBytes, device_.stream()),
               "cuMemcpyAsync");
}

Status Blocks::Test() {
  const Scope scope(device_);
  for (size_t rank = 0; rank < on_device_.size(); ++rank) {
    if (on_device_[rank] != nullptr) AXCCL_RETURN_IF_ERROR(CheckRead(rank));
  }
  return CheckMarks();
}

// Reads with the device, because the host may reach the memory by another path.
Status Blocks::CheckRead(size_t rank) const {
  const CUdeviceptr landing = own_.address + test_at_ + kPatternBytes;
  AXCCL_RETURN_IF_CUDA_ERROR(
      Driver::Loaded().cuMemcpyAsync(landing, on_device_[rank]->address() + test_at_, kPatternBytes, device_.stream()));
  std::vector<uint64_t> words(kPatternWords);
  AXCCL_RETURN_IF_ERROR(Fetch(landing, &words));
  if (words == PatternOf(addresses_[rank], rank)) return Status();
  return MakeStatus(
      Code::kUnhandledCudaError,
      "rank %d on CUDA device %d does not read from the memory of rank %zu (device %d) what is written there", rank_,
      device_.ordinal(), rank, addresses_[rank].device);
}

Status Blocks::CheckMarks() const {
  std::vector<uint64_t> words(kMarkWords * on_device_.size());
  AXCCL_RETURN_IF_ERROR(Fetch(MarkIn(own_.address, 0), &words));
  for (size_t rank = 0; rank < on_device_.size(); ++rank) {
    if (on_device_[rank] == nullptr) continue;
    const std::vector<uint64_t> pattern = PatternOf(addresses_[rank], rank);
    if (std::equal(pattern.begin(), pattern.begin() + kMarkWords,
                   words.begin() + static_cast<ptrdiff_t>(kMarkWords * rank)))
      continue;
    return MakeStatus(
        Code::kUnhandledCudaError,
        "what rank %zu (CUDA device %d) has written to the memory of rank %d (device %d) has not arrived there", rank,
        addresses_[rank].device, rank_, device_.ordinal());
  }
  return Status();
}

Status Blocks::Fetch(CUdeviceptr from, std::vector<uint64_t>* words) const {
  const Driver& driver = Driver::Loaded();
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemcpyDtoHAsync(words->data(), from, words->size() * sizeof(uint64_t), device_.stream()));
  return Check(driver.cuStreamSynchronize(device_.stream()), "cuStreamSynchronize");
}

Status Blocks::MapHost(const std::vector<std::byte*>& memory, const Hosts& hosts) {
  if (!on_devices()) {
    Release(&own_);
    Release(&former_);
    file_.Close();
  }
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    const bool own = static_cast<int>(rank) == rank_;
    AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Reach> reach, Reach::Pin(device_, *hosts[rank], own, memory[rank], bytes_));
    in_host_.push_back(std::move(reach));
  }
  return Status();
}

void Blocks::Unmap() {
  const Scope scope(device_);
  Driver::Loaded().cuStreamSynchronize(device_.stream());  // marks may still be on their way
  on_device_.clear();
  in_host_.clear();
}

}  // namespace axccl::cuda_ipc
