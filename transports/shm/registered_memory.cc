#include "transports/shm/registered_memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/base/files.h"
#include "src/base/service_fd.h"
#include "transports/shm/exchange.h"
#include "transports/shm/mapping.h"

namespace axccl::shm {
namespace {

const auto* const kEverywhere = reinterpret_cast<const std::byte*>(~uintptr_t{0});

// A line of /proc/self/maps.
struct Mapping {
  unsigned long begin, end;
  char access[5];
  unsigned long offset;
  unsigned major, minor;
  unsigned long inode;
  std::string name;
};

// Returns the parts of [begin, end) that are mapped, in order.
Result<std::vector<Mapping>> MappingsIn(const std::byte* begin, const std::byte* end) {
  constexpr size_t kMostText = size_t{64} << 20;
  AXCCL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("/proc/self/maps", kMostText));
  const auto first = reinterpret_cast<uintptr_t>(begin), last = reinterpret_cast<uintptr_t>(end);
  std::vector<Mapping> found;
  for (size_t at = 0; at < text.size();) {
    const size_t line_end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, line_end - at);
    at = line_end + 1;
    Mapping m{};
    int name = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &m.begin, &m.end, m.access, &m.offset, &m.major,
                    &m.minor, &m.inode, &name) < 7 ||
        m.end <= first || m.begin >= last)
      continue;
    m.name = line.substr(static_cast<size_t>(name));
    const unsigned long cut = std::max<unsigned long>(m.begin, first);
    m.offset += cut - m.begin;
    m.begin = cut;
    m.end = std::min<unsigned long>(m.end, last);
    found.push_back(std::move(m));
  }
  return found;
}

// Whether the calling thread writes there while it works.
bool IsOwnStack(const std::byte* begin, const std::byte* end) {
  constexpr size_t kNear = size_t{64} << 10;  // for stacks that the thread library does not know
  const std::byte here{};
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
  void* stack = nullptr;
  size_t bytes = 0;
  const int error = pthread_attr_getstack(&attributes, &stack, &bytes);
  pthread_attr_destroy(&attributes);
  const auto* const low = static_cast<const std::byte*>(stack);
  if (error != 0 || (begin < low + bytes && end > low)) return true;
  // What lies next to a stack that is known does not belong to it: the system maps memory close together.
  const bool known = &here >= low && &here < low + bytes;
  return !known && begin < &here + kNear && end > &here - kNear;
}

// Returns an error unless all of it is memory as malloc and mmap give it.
Status CheckPrivate(const std::byte* begin, const std::byte* end) {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, MappingsIn(begin, end));
  auto next = reinterpret_cast<uintptr_t>(begin);
  for (const Mapping& m : mappings) {
    const bool anonymous = m.inode == 0 && (m.name.empty() || m.name == "[heap]" || m.name.starts_with("[anon"));
    if (m.begin != next || !anonymous || std::strcmp(m.access, "rw-p") != 0) break;
    next = m.end;
  }
  if (next == reinterpret_cast<uintptr_t>(end)) return Status();
  return MakeStatus(Code::kInvalidUsage, "it is not private, anonymous, readable and writable in all of its pages");
}

// For memory on pages of the heap, which keep their content: MPI libraries and UCX watch this function, and pin anew
// what they keep pinned for devices.
void Announce(std::byte* at, size_t bytes) { (void)madvise(at, bytes, MADV_DONTNEED); }

Status ExchangeFor(std::byte* at, size_t bytes, void* replacement) {
  if (replacement == MAP_FAILED || replacement == nullptr)
    return SystemError(errno, "mapping %zu bytes in place of registered memory", bytes);
  // The thread would wait for itself. Another one may have registered this stack.
  Status status =
      IsOwnStack(at, at + bytes)
          ? MakeStatus(Code::kInvalidUsage, "it is on the stack of the thread that would exchange its pages")
          : Exchange(at, bytes, static_cast<std::byte*>(replacement));
  if (!status.ok()) munmap(replacement, bytes);
  return status;
}

// Exchanges private memory for pages of the heap.
Status MoveToHeap(const Heap& heap, std::byte* at, size_t bytes, uint64_t offset) {
  void* const shared = MapAgain(heap.base() + offset, bytes, nullptr);
  if (shared != MAP_FAILED) (void)madvise(shared, bytes, MADV_DODUMP);  // which the heap's own mapping is not
  AXCCL_RETURN_IF_ERROR(ExchangeFor(at, bytes, shared));
  Announce(at, bytes);
  // A mapping that realloc enlarges by mremap would get the pages of others, behind its own in the heap. Of one whose
  // pages are of two kinds, the kernel refuses that, and realloc copies. The kind means little for a single page.
  (void)madvise(at, kPageBytes, MADV_RANDOM);
  return Status();
}

struct Part {
  std::byte* at;
  size_t bytes;
  uint64_t offset;
};

// Returns where the `bytes` of the heap from `offset` on are still mapped for the application: at `home`, and wherever
// it has moved them since (mremap). The heap's own mapping does not count, nor do those that begin before the pages:
// they are windows of another copy of this library.
Result<std::vector<Part>> PartsInHeap(const Heap& heap, const std::byte* home, size_t bytes, uint64_t offset) {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Mapping> mappings, MappingsIn(nullptr, kEverywhere));
  const auto own = reinterpret_cast<uintptr_t>(heap.base());
  std::vector<Part> parts;
  for (const Mapping& m : mappings) {
    if (service::FileId(makedev(m.major, m.minor), m.inode) != heap.file().id() || m.access[3] != 's' ||
        m.begin - own < heap.bytes())
      continue;
    const uint64_t first = std::max<uint64_t>(m.offset, offset);
    const uint64_t last = std::min<uint64_t>(m.offset + (m.end - m.begin), offset + bytes);
    if (first >= last) continue;
    auto* const at = reinterpret_cast<std::byte*>(m.begin + (first - m.offset));
    if (m.offset < offset && at != home + (first - offset)) continue;
    Part* const before = parts.empty() ? nullptr : &parts.back();
    if (before != nullptr && before->at + before->bytes == at && before->offset + before->bytes == first) {
      before->bytes += last - first;
    } else {
      parts.push_back({at, last - first, first});
    }
  }
  return parts;
}

Status MakePrivate(const Heap& heap, const std::byte* home, size_t bytes, uint64_t offset) {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsInHeap(heap, home, bytes, offset));
  for (const Part& part : parts) {
    Announce(part.at, part.bytes);
    AXCCL_RETURN_IF_ERROR(ExchangeFor(part.at, part.bytes, MapPrivate(part.bytes)));
  }
  return Status();
}

// The pages that a buffer touches.
std::pair<std::byte*, std::byte*> PagesOf(const void* p, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const uintptr_t begin = address / kPageBytes * kPageBytes;
  const uintptr_t end = (address + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(p)) - (address - begin);
  return {memory, memory + (end - begin)};
}

// The first area that ends behind `p`.
auto FirstFrom(auto& areas, const std::byte* p) {
  auto area = areas.upper_bound(const_cast<std::byte*>(p));
  if (area != areas.begin() && std::prev(area)->first + std::prev(area)->second.bytes > p) --area;
  return area;
}

// The area that has all of [begin, end).
auto FindAround(auto& areas, const std::byte* begin, const std::byte* end) {
  const auto area = FirstFrom(areas, begin);
  const bool found = area != areas.end() && area->first <= begin && end <= area->first + area->second.bytes;
  return found ? area : areas.end();
}

}  // namespace

// Takes no memory: a fork may be the first to ask, and there may be none. Never destroyed.
RegisteredMemory& RegisteredMemory::Process() {
  alignas(RegisteredMemory) static std::byte place[sizeof(RegisteredMemory)];
  static auto* const process = new (place) RegisteredMemory;
  return *process;
}

bool RegisteredMemory::FindOffset(const void* p, size_t bytes, uint64_t* offset) const {
  const auto* const begin = static_cast<const std::byte*>(p);
  std::shared_lock lock(mutex_);
  const auto area = FindAround(areas_, begin, begin + bytes);
  if (area == areas_.end() || area->second.taken_back) return false;
  *offset = area->second.offset + static_cast<uint64_t>(begin - area->first);
  return true;
}

bool RegisteredMemory::AnyTakenBack(const void* p, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(p);
  std::shared_lock lock(mutex_);
  for (auto area = FirstFrom(areas_, begin); area != areas_.end() && area->first < begin + bytes; ++area) {
    if (area->second.taken_back) return true;
  }
  return false;
}

RegisteredMemory::Areas::node_type RegisteredMemory::Take(Areas::iterator area) {
  std::lock_guard lock(mutex_);
  count_.fetch_sub(1, std::memory_order_release);
  return areas_.extract(area);
}

void RegisteredMemory::Insert(Areas::node_type area) {
  std::lock_guard lock(mutex_);
  areas_.insert(std::move(area));
  count_.fetch_add(1, std::memory_order_release);
}

// Drops what the application has unmapped, or moved, although it is registered; it has other memory there now.
void RegisteredMemory::ForgetUnmapped(const std::byte* begin, const std::byte* end) {
  for (auto area = FirstFrom(areas_, begin); area != areas_.end() && area->first < end;) {
    const auto next = std::next(area);
    const Area& a = area->second;
    const auto parts = PartsInHeap(*heap_, area->first, a.bytes, a.offset);
    const auto at_home = [&](const Part& part) { return part.at >= area->first && part.at < area->first + a.bytes; };
    if (!a.taken_back && parts.ok() && std::ranges::none_of(parts.value(), at_home) &&
        MakePrivate(*heap_, area->first, a.bytes, a.offset).ok())
      (void)heap_->Free(Take(area).mapped().pages).ok();
    area = next;
  }
}

Result<uint64_t> RegisteredMemory::Add(Heap* heap, const void* p, size_t bytes) {
  if (uint64_t offset; heap->Contains(p, bytes, &offset)) return uint64_t{0};
  if (bytes < kLeastBytes) return MakeStatus(Code::kInvalidUsage, "it has less than %zu bytes", kLeastBytes);
  if (heap->file().kind() != transport::HeapKind::kMemfd)
    return MakeStatus(Code::kInvalidUsage, "the shared heap is no memfd");
  const auto [begin, end] = PagesOf(p, bytes);
  std::lock_guard changing(changing_);
  heap_ = heap;
  ForgetUnmapped(begin, end);
  if (const auto around = FindAround(areas_, begin, end); around != areas_.end() && !around->second.taken_back) {
    ++around->second.uses;
    return around->second.number;
  }
  if (const auto other = FirstFrom(areas_, begin); other != areas_.end() && other->first < end)
    return MakeStatus(Code::kInvalidUsage, "it shares a page with another registered buffer");
  AXCCL_RETURN_IF_ERROR(CheckPrivate(begin, end));
  const auto length = static_cast<size_t>(end - begin);
  AXCCL_ASSIGN_OR_RETURN(void* const pages, heap->Allocate(length, kPageBytes));
  const auto give_back = [&](void* unused) { (void)heap->Free(unused).ok(); };
  std::unique_ptr<void, decltype(give_back)> guard(pages, give_back);
  const auto offset = static_cast<uint64_t>(static_cast<std::byte*>(pages) - heap->base());
  Areas fresh;  // allocated first: nothing may fail once the pages are exchanged
  fresh[begin] = {length, static_cast<std::byte*>(pages), offset, last_number_ + 1, 1, false};
  AXCCL_RETURN_IF_ERROR(MoveToHeap(*heap, begin, length, offset));
  (void)guard.release();
  Insert(fresh.extract(fresh.begin()));
  return ++last_number_;
}

Status RegisteredMemory::Remove(const void* p, size_t bytes, uint64_t number) {
  const auto [begin, end] = PagesOf(p, bytes);
  std::lock_guard changing(changing_);
  const auto area = FindAround(areas_, begin, end);
  if (area == areas_.end() || area->second.number != number) return Status();
  if (area->second.uses > 1) return --area->second.uses, Status();
  Areas::node_type leaving = Take(area);
  const Area& left = leaving.mapped();
  if (Status made = MakePrivate(*heap_, leaving.key(), left.bytes, left.offset); !made.ok()) {
    Insert(std::move(leaving));
    return made;
  }
  // A peer in the middle of a step may write to pages that were taken back.
  if (left.taken_back) AXCCL_RETURN_IF_ERROR(heap_->TakeBack(left.pages, left.bytes));
  return heap_->Free(left.pages);
}

Status RegisteredMemory::TakeBack(const void* p, size_t bytes) {
  if (count_.load(std::memory_order_acquire) == 0) return Status();
  const auto [begin, end] = PagesOf(p, bytes);
  std::lock_guard changing(changing_);
  for (auto area = FirstFrom(areas_, begin); area != areas_.end() && area->first < end; ++area) {
    {
      std::lock_guard lock(mutex_);
      area->second.taken_back = true;
    }
    AXCCL_RETURN_IF_ERROR(MakePrivate(*heap_, area->first, area->second.bytes, area->second.offset));
  }
  return Status();
}

// ---- forks ----

// The content is read where the heap has it: the application may have unmapped the memory.
void RegisteredMemory::BeforeFork() noexcept {
  changing_.lock();
  mutex_.lock();
  for (const auto& [begin, area] : areas_) {
    if (area.taken_back) continue;
    const auto add = [&](const Part& part) {
      auto* const copy = static_cast<std::byte*>(MapPrivate(part.bytes));
      if (copy != nullptr) std::memcpy(copy, heap_->base() + part.offset, part.bytes);
      copies_.push_back({part.at, part.bytes, copy});
    };
    const auto parts = PartsInHeap(*heap_, begin, area.bytes, area.offset);
    if (!parts.ok()) add({begin, area.bytes, area.offset});
    if (parts.ok()) std::for_each(parts.value().begin(), parts.value().end(), add);
  }
}

void RegisteredMemory::AfterFork(bool in_child) noexcept {
  for (const auto& [at, bytes, copy] : copies_) {
    if (in_child) {
      PutInPlace(at, bytes, copy);
    } else if (copy != nullptr) {
      munmap(copy, bytes);
    }
  }
  copies_.clear();
  if (in_child) {
    new (&mutex_) std::shared_mutex;  // the child's thread has another number than the one that locked it
  } else {
    mutex_.unlock();
  }
  changing_.unlock();
}

}  // namespace axccl::shm
