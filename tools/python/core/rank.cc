#include "tools/python/core/rank.h"

#include <atomic>
#include <bitset>
#include <utility>

namespace axccl::python {
namespace {

constexpr int kDevices = 1024;
std::bitset<kDevices> g_taken;  // the GIL protects it

// Aborts a communicator that another thread is making. The library stores the handle before it waits.
void AbortMaking(ncclComm_t* comm) {
  const ncclComm_t made = std::atomic_ref<ncclComm_t>(*comm).load(std::memory_order_acquire);
  if (made != nullptr) (void)ncclCommAbort(made);
}

}  // namespace

Device::Device() : number_(kDevices - 1) {
  while (number_ >= 0 && g_taken[static_cast<size_t>(number_)]) --number_;
  if (number_ < 0) Raise(ncclInvalidUsage, "Communicator: the process has 1024 of them, as many as it may; close some");
  g_taken.set(static_cast<size_t>(number_));
}

Device::~Device() { g_taken.reset(static_cast<size_t>(number_)); }

std::shared_ptr<Rank> Rank::Join(int rank, int size, const ncclUniqueId& id, const char* name,
                                 std::optional<double> timeout) {
  auto joined = std::make_shared<Rank>(std::make_shared<Device>());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.commName = name;
  ncclComm_t comm = nullptr;
  RaiseIfFailed(RunOnDevice(
      joined->device_->number(), [&] { return ncclCommInitRankConfig(&comm, size, id, rank, &config); },
      [&] { AbortMaking(&comm); }));
  joined->Own(comm);
  joined->Ready();
  if (timeout) RaiseIfFailed(Take(axcclCommSetTimeout(comm, *timeout)));
  return joined;
}

std::vector<std::shared_ptr<Rank>> Rank::MakeAll(int size) {
  std::vector<std::shared_ptr<Rank>> ranks;
  std::vector<int> devices;
  for (int i = 0; i < size; ++i) {
    ranks.push_back(std::make_shared<Rank>(std::make_shared<Device>()));
    devices.push_back(ranks.back()->device_->number());
  }
  std::vector<ncclComm_t> comms(static_cast<size_t>(size));
  RaiseIfFailed(RunOnDevice(
      devices.empty() ? 0 : devices[0], [&] { return ncclCommInitAll(comms.data(), size, devices.data()); }, [] {}));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i]->Own(comms[i]);
  for (const auto& rank : ranks) rank->Ready();
  return ranks;
}

std::shared_ptr<Rank> Rank::Split(int color, int key) {
  const ncclComm_t parent = comm("split");
  auto part = std::make_shared<Rank>(device_);
  ncclComm_t made = nullptr;
  RaiseIfFailed(RunOnDevice(
      device_->number(), [&] { return ncclCommSplit(parent, color, key, &made, nullptr); },
      [&] { AbortMaking(&made); }));
  if (made == nullptr) return nullptr;
  part->Own(made);
  part->Ready();
  return part;
}

void Rank::Own(ncclComm_t comm) {
  comm_ = comm;
  open_ = true;
}

void Rank::Ready() {
  RaiseIfFailed(Take(ncclCommUserRank(comm_, &rank_)));
  RaiseIfFailed(Take(ncclCommCount(comm_, &size_)));
  streams_.push_back(NewStream());
}

axcclStream_t Rank::NewStream() {
  axcclStream_t stream = nullptr;
  RaiseIfFailed(RunOnDevice(
      device_->number(), [&] { return axcclStreamCreate(&stream, axcclStreamNonBlocking); }, [] {}));
  return stream;
}

axcclStream_t Rank::TakeStream() {
  if (streams_.empty()) return NewStream();
  const axcclStream_t stream = streams_.back();
  streams_.pop_back();
  return stream;
}

Rank::~Rank() {
  // In a forked child the library refuses these calls, which is as well. No call waits, because calls keep their rank.
  if (open_) {
    const Unlocked unlocked;
    (void)ncclCommDestroy(comm_);
  }
  for (const axcclStream_t stream : streams_) (void)axcclStreamDestroy(stream);
}

void Rank::Close() {
  if (!std::exchange(open_, false)) return;
  ended_ = "is closed";
  closing_ = true;
  bool begun = false;
  const auto destroy = [&] {
    begun = true;
    return ncclCommDestroy(comm_);
  };
  try {
    (void)RunOnDevice(device_->number(), destroy, [&] { (void)ncclCommAbort(comm_); });
  } catch (nb::python_error&) {
    ended_ = "was aborted because a signal interrupted close";
    closing_ = false;
    throw;
  }
  if (!begun) {  // the system grants no thread
    const Unlocked unlocked;
    (void)destroy();
  }
  closing_ = false;
}

void Rank::Abort(const std::string& why) {
  if (!std::exchange(open_, false) && !closing_) return;
  ended_ = "was aborted" + why;
  const Unlocked unlocked;
  (void)ncclCommAbort(comm_);
}

void Rank::RaiseEnded(const char* call) const {
  Raise(ncclInvalidUsage, std::string(call) + ": the communicator " + ended_ + "; make a new one");
}

void Rank::RaiseInterrupted(const char* call) {
  const nb::python_error raised;
  Abort(" because a signal interrupted " + std::string(call));
  throw raised;
}

}  // namespace axccl::python
