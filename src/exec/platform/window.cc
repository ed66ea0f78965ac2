#include "src/exec/platform/window.h"

#include <map>
#include <mutex>
#include <numeric>
#include <utility>

namespace axccl::exec {
namespace {

struct Windows {
  std::mutex mutex;
  std::map<uint64_t, WindowPlaces> by_handle;
};

Windows& TheWindows() {
  static auto* const windows = new Windows;
  return *windows;
}

Result<void*> AddressOf(const WindowPlaces& places, uint64_t offset, int team_rank) {
  const uint64_t bytes = places.bytes[static_cast<size_t>(team_rank)];
  if (offset >= bytes)
    return MakeStatus(Code::kInvalidArgument, "argument offset is %llu; rank %d has %llu bytes in the window",
                      static_cast<unsigned long long>(offset), places.team.first + team_rank,
                      static_cast<unsigned long long>(bytes));
  return reinterpret_cast<void*>(places.flat + static_cast<uint64_t>(team_rank) * places.stride + offset);
}

}  // namespace

LsaTeam LsaTeamOf(const std::vector<Member>& members, int rank) {
  int size = 0, stretch = 0;
  for (size_t r = 0; r < members.size(); ++r) {
    ++stretch;
    if (r + 1 < members.size() && members[r + 1].machine == members[r].machine) continue;
    size = std::gcd(size, stretch);
    stretch = 0;
  }
  return {rank / size * size, size};
}

WindowOnDevice OnDevice(const WindowPlaces& places, int rank) {
  WindowOnDevice window;
  window.lsaFlatBase = places.flat;
  window.lsaRank = rank - places.team.first;
  window.worldRank = rank;
  window.stride4G = static_cast<uint32_t>(places.stride >> 32);
  window.mcOffset4K = static_cast<uint32_t>(places.multicast_offset >> 12);
  return window;
}

Window::Window(WindowPlaces places, std::shared_ptr<void> memory)
    : held_(std::make_shared<const Held>(Held{std::move(places), std::move(memory)})) {
  std::lock_guard lock(TheWindows().mutex);
  TheWindows().by_handle[held_->places.handle] = held_->places;
}

Window::~Window() {
  std::lock_guard lock(TheWindows().mutex);
  TheWindows().by_handle.erase(held_->places.handle);
}

Result<WindowPlaces> Window::Find(const void* handle) {
  std::lock_guard lock(TheWindows().mutex);
  const auto found = TheWindows().by_handle.find(reinterpret_cast<uint64_t>(handle));
  if (found != TheWindows().by_handle.end()) return found->second;
  return MakeStatus(Code::kInvalidArgument,
                    "argument window (%p) is not a live window of a rank on a GPU; pass one of ncclCommWindowRegister",
                    handle);
}

Result<void*> Window::AddressOfAll(const void* handle, uint64_t offset, uint64_t base) {
  AXCCL_ASSIGN_OR_RETURN(const WindowPlaces places, Find(handle));
  if (places.multicast == 0) return nullptr;
  if (base != 0 && base != places.multicast_base)
    return MakeStatus(Code::kInvalidArgument,
                      "argument multimem is not of the communicator of the window; pass that of one of its device "
                      "communicators");
  for (int i = 0; i < places.team.size; ++i) AXCCL_RETURN_IF_ERROR(AddressOf(places, offset, i).status());
  return reinterpret_cast<void*>(places.multicast + offset);
}

Result<void*> Window::AddressIn(const void* handle, uint64_t offset, int team_rank) {
  AXCCL_ASSIGN_OR_RETURN(const WindowPlaces places, Find(handle));
  if (team_rank < 0 || team_rank >= places.team.size)
    return MakeStatus(Code::kInvalidArgument, "argument lsaRank is %d; pass 0..%d", team_rank, places.team.size - 1);
  return AddressOf(places, offset, team_rank);
}

Result<void*> Window::AddressAt(const void* handle, uint64_t offset, int rank) {
  AXCCL_ASSIGN_OR_RETURN(const WindowPlaces places, Find(handle));
  if (rank < 0 || rank >= places.ranks)
    return MakeStatus(Code::kInvalidArgument, "argument peer is %d; pass 0..%d", rank, places.ranks - 1);
  if (!places.team.Has(rank)) return nullptr;
  return AddressOf(places, offset, rank - places.team.first);
}

}  // namespace axccl::exec
