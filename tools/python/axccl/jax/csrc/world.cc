#include "world.h"

#include <system_error>
#include <thread>
#include <utility>

namespace axccl::jax {
namespace {

// Host devices for the ranks, from this one down. A communicator of the package takes them from 1023 down, and the
// library gives them out from 0 up.
constexpr int kLastDevice = 767;

std::mutex g_mutex;
std::shared_ptr<World> g_current;
std::shared_ptr<World> g_joining;  // of the thread that is in World::Join

// Runs `work` on a thread that has `device` as its current one, because the caller's must stay as it is.
template <class Work>
ncclResult_t OnDevice(int device, std::string* error, Work&& work) {
  ncclResult_t result = ncclSystemError;
  try {
    std::thread([&] {
      result = axcclHostSetDevice(device);
      if (result == ncclSuccess) result = work();
      if (result != ncclSuccess) *error = ncclGetLastError(nullptr);
    }).join();
  } catch (const std::system_error& failed) {
    *error = std::string("no thread can be started: ") + failed.what() + "; raise the limit on threads (ulimit -u)";
  }
  return result;
}

}  // namespace

std::string Rank::Join(const ncclUniqueId& id, int size, int rank, int device, double timeout) {
  size_ = size;
  device_ = device;
  std::string error;
  (void)OnDevice(device, &error, [&] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = "axccl.jax";
    ncclResult_t result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
    if (result == ncclSuccess && timeout >= 0) result = axcclCommSetTimeout(comm_, timeout);
    axcclStream_t stream = nullptr;
    if (result == ncclSuccess) result = axcclStreamCreate(&stream, axcclStreamNonBlocking);
    if (result == ncclSuccess) streams_.push_back(stream);
    return result;
  });
  return error;
}

void Rank::AbandonJoin() {
  // The library stores the handle before it waits.
  const ncclComm_t comm = __atomic_load_n(&comm_, __ATOMIC_ACQUIRE);
  if (comm != nullptr) (void)ncclCommAbort(comm);
}

Rank::~Rank() {
  for (const auto& [key, channel] : channels_) (void)axcclChannelDestroy(channel);
  if (comm_ != nullptr) (void)ncclCommDestroy(comm_);
  for (const axcclStream_t stream : streams_) (void)axcclStreamDestroy(stream);
}

ncclResult_t Rank::Channel(const int64_t* ranks, size_t count, int64_t group_size, axcclChannel_t* channel) {
  if (count == 0) {
    *channel = axcclDefaultChannel(comm_);
    return ncclSuccess;
  }
  std::vector<int64_t> key = {group_size};
  key.insert(key.end(), ranks, ranks + count);
  const std::lock_guard lock(mutex_);
  const auto found = channels_.find(key);
  if (found != channels_.end()) {
    *channel = found->second;
    return ncclSuccess;
  }
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_partitions = size_;
  spec.ids = ranks;
  spec.group_size = static_cast<size_t>(group_size);
  spec.num_groups = count / spec.group_size;
  axcclGroups_t groups = nullptr;
  ncclResult_t result = axcclGroupsCreate(&groups, &spec);
  if (result != ncclSuccess) return result;
  result = axcclChannelCreate(channel, comm_, groups, 0, 0);
  if (result == ncclSuccess) channels_.emplace(std::move(key), *channel);
  (void)axcclGroupsDestroy(groups);
  return result;
}

axcclStream_t Rank::TakeStream(std::string* error) {
  {
    const std::lock_guard lock(mutex_);
    if (!streams_.empty()) {
      const axcclStream_t stream = streams_.back();
      streams_.pop_back();
      return stream;
    }
  }
  axcclStream_t stream = nullptr;
  (void)OnDevice(device_, error, [&] { return axcclStreamCreate(&stream, axcclStreamNonBlocking); });
  return stream;
}

void Rank::GiveBack(axcclStream_t stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

std::string World::Join(const ncclUniqueId& id, int size, const std::vector<int>& ids, const std::vector<int>& ranks,
                        double timeout) {
  auto world = std::make_shared<World>();
  world->size_ = size;
  std::vector<std::string> errors(ranks.size());
  for (const int id_of_device : ids) world->ranks_[id_of_device] = std::make_unique<Rank>();
  {
    const std::lock_guard lock(g_mutex);
    g_joining = world;
  }
  std::vector<std::thread> threads;  // because each rank waits for all
  for (size_t i = 0; i < ranks.size(); ++i) {
    try {
      threads.emplace_back([&, i, rank = world->rank(ids[i])] {
        errors[i] = rank->Join(id, size, ranks[i], kLastDevice - static_cast<int>(i), timeout);
      });
    } catch (const std::system_error& failed) {
      errors[i] =
          std::string("no thread can be started: ") + failed.what() + "; raise the limit on threads (ulimit -u)";
    }
  }
  for (std::thread& thread : threads) thread.join();
  const std::lock_guard lock(g_mutex);
  g_joining = nullptr;
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  g_current = std::move(world);
  return {};
}

void World::AbandonJoin() {
  const std::lock_guard lock(g_mutex);
  if (g_joining == nullptr) return;
  for (const auto& [device, rank] : g_joining->ranks_) rank->AbandonJoin();
}

std::shared_ptr<World> World::Current() {
  const std::lock_guard lock(g_mutex);
  return g_current;
}

void World::Leave() {
  std::shared_ptr<World> world;  // its end may wait, so it comes after that of the lock
  const std::lock_guard lock(g_mutex);
  world = std::exchange(g_current, nullptr);
}

}  // namespace axccl::jax
