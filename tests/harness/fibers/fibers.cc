#include "tests/harness/fibers/fibers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "tests/harness/fibers/context.h"

// This file is compiled without sanitizers, because all fibers use its memory; it informs ThreadSanitizer of what they
// do.
#if defined(AXCCL_FIBERS_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace axccl::fibers {
namespace {

constexpr size_t kStackBytes = 256u << 10;
constexpr size_t kSharedBytes = 48u << 10;
constexpr size_t kMostPending = 48;
constexpr uint64_t kLongestBurst = 2000;

struct Block;

// ThreadSanitizer's view: each fiber is a thread.
#if defined(AXCCL_FIBERS_TSAN)
constexpr bool kSanitized = true;  // each fiber of a run needs a stack and a thread of its own

struct Sanitizer {
  void* fiber = nullptr;
  void Create() { fiber = __tsan_create_fiber(0); }
  void Current() { fiber = __tsan_get_current_fiber(); }
  void Destroy() { __tsan_destroy_fiber(fiber); }
  void Enter() { __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync); }
  static void Release(void* p) { __tsan_release(p); }
  static void Acquire(void* p) { __tsan_acquire(p); }
};
#else
constexpr bool kSanitized = false;

struct Sanitizer {
  void Create() {}
  void Current() {}
  void Destroy() {}
  void Enter() {}
  static void Release(void*) {}
  static void Acquire(void*) {}
};
#endif

// The context of a fiber.
struct Place {
  explicit Place(size_t bytes) : stack(bytes) { sanitizer.Create(); }
  ~Place() { sanitizer.Destroy(); }

  Stack stack;
  Sanitizer sanitizer;
};

struct Fiber {
  Block* block = nullptr;
  uint32_t thread = 0;
  bool waits = false;  // in a barrier
  bool ended = false;
  bool fenced = false;  // since its last barrier
  Place* place = nullptr;
};

// A store that has not reached memory yet.
struct Pending {
  uint8_t* at;
  uint64_t value;
  uint8_t bytes;
  bool published;  // by a barrier: all of the block see it
  uint32_t thread;
  const uint8_t* row = nullptr;  // in place of the value

  const void* data() const { return row != nullptr ? static_cast<const void*>(row) : &value; }
  bool SeenBy(uint32_t who) const { return published || thread == who; }
  bool Overlaps(const uint8_t* p, size_t n) const { return at < p + n && p < at + bytes; }
  void Write() const { std::memcpy(at, data(), bytes); }
};

// Parts of a row, from neighbouring threads.
struct PartialRow {
  uint8_t* at = nullptr;
  uint32_t parts = 0;  // a bit each
  uint64_t bytes[kRowBytes / 8];
};

struct Progress {
  const Stream* stream = nullptr;
  size_t next = 0;           // launch
  uint32_t blocks_left = 0;  // of the one before
  char order = 0;            // stands for the ends and starts of launches
};

struct Block {
  Progress* progress = nullptr;
  const Launch* launch = nullptr;
  uint32_t index = 0;
  std::vector<Fiber> fibers;
  std::vector<Fiber*> ready;
  std::vector<Pending> pending;
  std::deque<std::array<uint8_t, kRowBytes>> rows;  // that were stored
  std::vector<PartialRow> partial_rows;             // by thread / kRowThreads
  std::unique_ptr<uint64_t[]> shared = std::make_unique<uint64_t[]>(kSharedBytes / 8);
  size_t shared_bytes = 0;
  uint32_t arrived = 0, count = 0, result = 0, left = 0;
  bool passed = false;         // all have arrived at a barrier
  char order = 0;              // stands for the block's barriers
  std::vector<BulkUnit> bulk;  // by thread
  alignas(128) std::array<uint8_t, kDynamicSharedBytes> dynamic_shared;
  bool copies_in_bulk = false;
};

struct Machine {
  std::vector<Progress> streams;
  std::vector<std::unique_ptr<Block>> blocks;  // that run
  std::vector<std::unique_ptr<Block>> ended;
  std::vector<Place*> free_places;
  Fiber* now = nullptr;
  Sanitizer scheduler;
  const Options* options = nullptr;
  uint64_t random = 0;
  Block* favourite = nullptr;
  uint64_t burst = 0;
};

Machine* machine = nullptr;

// Kept for reuse, because ThreadSanitizer needs longer for a new thread than for most runs; a thread has at most one
// machine at a time.
std::vector<std::unique_ptr<Place>>& Places() {
  static std::vector<std::unique_ptr<Place>> places;
  return places;
}

uint64_t Next(uint64_t* state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

void Leave(Fiber* fiber) {
  machine->scheduler.Enter();
  fiber->place->stack.Leave();
}

void Entry() {
  Fiber* const fiber = machine->now;
  Sanitizer::Acquire(&fiber->block->progress->order);
  fiber->block->launch->body();
  Sanitizer::Release(&fiber->block->progress->order);
  fiber->ended = true;
  Leave(fiber);
  std::abort();
}

void Remove(std::vector<Fiber*>* list, Fiber* fiber) { list->erase(std::find(list->begin(), list->end(), fiber)); }

Place* TakePlace() {
  if (machine->free_places.empty()) {
    Places().push_back(std::make_unique<Place>(kStackBytes));
    return Places().back().get();
  }
  Place* const place = machine->free_places.back();
  machine->free_places.pop_back();
  return place;
}

void StartBlock(Progress* progress, const Launch& launch, uint32_t index) {
  auto block = std::make_unique<Block>();
  block->progress = progress;
  block->launch = &launch;
  block->index = index;
  block->fibers.resize(launch.threads);
  block->left = launch.threads;
  block->partial_rows.resize((launch.threads + kRowThreads - 1) / kRowThreads);
  const Bulk bulk = machine->options->bulk;
  block->copies_in_bulk = bulk == Bulk::kAlways || (bulk == Bulk::kBySeed && Draw(3) != 0);
  std::memset(block->shared.get(), 0xa5, kSharedBytes);
  block->dynamic_shared.fill(0xa5);
  block->bulk.resize(launch.threads);
  for (uint32_t t = 0; t < launch.threads; ++t) {
    Fiber& fiber = block->fibers[t];
    fiber.block = block.get();
    fiber.thread = t;
    fiber.place = TakePlace();
    fiber.place->stack.Prepare(Entry);
    block->ready.push_back(&fiber);
  }
  machine->blocks.push_back(std::move(block));
}

// Starts the next launch of a stream whose last one has ended.
void StartLaunch(Progress* progress) {
  if (progress->next == progress->stream->size()) return;
  const Launch& launch = (*progress->stream)[progress->next++];
  progress->blocks_left = launch.blocks;
  for (uint32_t b = 0; b < launch.blocks; ++b) StartBlock(progress, launch, b);
  Sanitizer::Release(&progress->order);
}

void RequireWholeRows(const Block& block) {
  for (const PartialRow& row : block.partial_rows) {
    if (row.parts != 0) std::abort();
  }
}

void OpenBarrier(Block* block) {
  RequireWholeRows(*block);
  block->passed = false;
  for (Pending& store : block->pending) store.published = true;
  for (Fiber& fiber : block->fibers) {
    if (!fiber.waits) continue;
    fiber.waits = false;
    block->ready.push_back(&fiber);
  }
}

void EndBlock(Block* block) {
  RequireWholeRows(*block);
  for (const Pending& store : block->pending) store.Write();
  for (const Fiber& fiber : block->fibers) {
    if (!kSanitized) machine->free_places.push_back(fiber.place);
  }
  Progress* const progress = block->progress;
  if (machine->favourite == block) machine->favourite = nullptr;
  const auto at =
      std::find_if(machine->blocks.begin(), machine->blocks.end(), [block](const auto& b) { return b.get() == block; });
  machine->ended.push_back(std::move(*at));
  machine->blocks.erase(at);
  if (--progress->blocks_left == 0) StartLaunch(progress);
}

// Picks a random block that can continue, for a while always the same. Null if there is none.
Block* PickBlock() {
  std::vector<Block*> able;
  for (const auto& block : machine->blocks) {
    if (!block->ready.empty()) able.push_back(block.get());
  }
  if (able.empty()) return nullptr;
  if (machine->burst == 0) {
    machine->burst = 1 + Draw(kLongestBurst);
    machine->favourite = Draw(4) != 0 ? able[Draw(able.size())] : nullptr;
  }
  --machine->burst;
  Block* const favourite = machine->favourite;
  if (favourite != nullptr && !favourite->ready.empty()) return favourite;
  return able[Draw(able.size())];
}

// Brings one store to memory, unless an earlier store to the same bytes still waits.
void Drain(Block* block, size_t index) {
  const Pending store = block->pending[index];
  for (size_t i = 0; i < index; ++i) {
    if (block->pending[i].Overlaps(store.at, store.bytes)) return;
  }
  store.Write();
  block->pending.erase(block->pending.begin() + static_cast<ptrdiff_t>(index));
}

// Of any thread.
void CopyPiece(std::vector<BulkUnit>* units) {
  const size_t first = Draw(units->size());
  for (size_t i = 0; i < units->size(); ++i) {
    BulkUnit& unit = (*units)[(first + i) % units->size()];
    if (unit.idle()) continue;
    const BulkUnit::Piece piece = unit.Next();
    std::memcpy(piece.to, piece.from, piece.bytes);
    return unit.End();
  }
}

void RunOne(Block* block) {
  Fiber* const fiber = block->ready[Draw(block->ready.size())];
  machine->now = fiber;
  fiber->place->sanitizer.Enter();
  fiber->place->stack.Enter();
  machine->now = nullptr;
  if (fiber->ended || fiber->waits) Remove(&block->ready, fiber);
  // Also for a block that stores nothing more.
  if (!block->pending.empty() && Draw(16) == 0) Drain(block, Draw(block->pending.size()));
  if (!kSanitized && block->copies_in_bulk && Draw(3) == 0) CopyPiece(&block->bulk);
  if (block->passed) OpenBarrier(block);
  if (fiber->ended && --block->left == 0) EndBlock(block);
}

}  // namespace

bool Run(const std::vector<Stream>& streams, const Options& options) {
  Machine here;
  machine = &here;
  here.options = &options;
  here.random = options.seed;
  here.scheduler.Current();
  for (const auto& place : Places()) here.free_places.push_back(place.get());
  here.streams.resize(streams.size());
  for (size_t i = 0; i < streams.size(); ++i) {
    here.streams[i].stream = &streams[i];
    StartLaunch(&here.streams[i]);
  }
  uint64_t switches = 0;
  Block* block = PickBlock();
  for (; block != nullptr && switches < options.most_switches; block = PickBlock()) {
    RunOne(block);
    if (++switches % options.host_interval == 0 && options.host) options.host();
  }
  for (Progress& progress : here.streams) Sanitizer::Acquire(&progress.order);
  // Fibers that stopped in the middle cannot be reused.
  if (!here.blocks.empty()) Places().clear();
  machine = nullptr;
  return here.blocks.empty();
}

Position Here() {
  const Fiber& fiber = *machine->now;
  const Launch& launch = *fiber.block->launch;
  return {fiber.thread, launch.threads, fiber.block->index, launch.blocks};
}

void* SharedMemory(size_t bytes) {
  Block& block = *machine->now->block;
  // Only one variable is simulated.
  if (bytes > kSharedBytes || (block.shared_bytes != 0 && block.shared_bytes != bytes)) std::abort();
  block.shared_bytes = bytes;
  return block.shared.get();
}

uint32_t BarrierCount(bool value) {
  Fiber* const fiber = machine->now;
  Block& block = *fiber->block;
  Sanitizer::Release(&block.order);
  block.count += value;
  fiber->waits = true;
  if (++block.arrived == block.fibers.size()) {
    block.result = block.count;
    block.arrived = block.count = 0;
    block.passed = true;
  }
  Leave(fiber);
  Sanitizer::Acquire(&block.order);
  fiber->fenced = false;
  return block.result;
}

namespace {

void Hold(Block* block, const Pending& store) {
  block->pending.push_back(store);
  if (block->pending.size() > kMostPending) Drain(block, 0);
  if (Draw(4) == 0) Drain(block, Draw(block->pending.size()));
}

}  // namespace

uint64_t Draw(uint64_t bound) { return Next(&machine->random) % bound; }
void Switch() { Leave(machine->now); }
void MaybeSwitch() {
  if (Draw(8) == 0) Switch();
}

uint64_t Load(const void* p, size_t bytes) {
  MaybeSwitch();
  const Fiber* const fiber = machine->now;
  if (machine->options->watch) machine->options->watch(fiber->thread, p, false);
  const auto* const from = static_cast<const uint8_t*>(p);
  uint8_t value[8] = {};
  std::memcpy(value, from, bytes);
  for (const Pending& store : fiber->block->pending) {
    if (!store.SeenBy(fiber->thread) || !store.Overlaps(from, bytes)) continue;
    const auto* const stored = static_cast<const uint8_t*>(store.data());
    for (size_t b = 0; b < bytes; ++b) {
      const ptrdiff_t in_store = from + b - store.at;
      if (in_store >= 0 && in_store < store.bytes) value[b] = stored[in_store];
    }
  }
  uint64_t word;
  std::memcpy(&word, value, 8);
  return word;
}

void Store(void* p, uint64_t value, size_t bytes) {
  MaybeSwitch();
  const Fiber* const fiber = machine->now;
  if (machine->options->watch) machine->options->watch(fiber->thread, p, true);
  Block* const block = fiber->block;
  Hold(block, {static_cast<uint8_t*>(p), value, static_cast<uint8_t>(bytes), false, fiber->thread});
}

// Calls nothing that ThreadSanitizer instruments.
const uint8_t* Gather(void* p, const void* part) {
  MaybeSwitch();
  const Fiber* const fiber = machine->now;
  if (machine->options->watch) machine->options->watch(fiber->thread, p, true);
  const size_t index = fiber->thread % kRowThreads;
  auto* const at = static_cast<uint8_t*>(p) - index * kPartBytes;
  PartialRow& row = fiber->block->partial_rows[fiber->thread / kRowThreads];
  if (row.parts == 0) row.at = at;
  if (row.at != at || reinterpret_cast<uintptr_t>(at) % kRowBytes != 0 || (row.parts >> index & 1) != 0) std::abort();
  row.parts |= 1u << index;
  for (size_t w = 0; w < kPartBytes / 8; ++w)
    std::memcpy(&row.bytes[index * (kPartBytes / 8) + w], static_cast<const uint8_t*>(part) + 8 * w, 8);
  if (row.parts != (1u << kRowThreads) - 1) return nullptr;
  row.parts = 0;
  return reinterpret_cast<const uint8_t*>(row.bytes);
}

void StoreRow(void* p, const uint8_t* row) {
  const Fiber* const fiber = machine->now;
  Block* const block = fiber->block;
  std::memcpy(block->rows.emplace_back().data(), row, kRowBytes);
  Hold(block, {static_cast<uint8_t*>(p), 0, kRowBytes, false, fiber->thread, block->rows.back().data()});
}

void BringOut() {
  const Fiber* const fiber = machine->now;
  std::vector<Pending> kept;
  for (const Pending& store : fiber->block->pending) {
    if (store.SeenBy(fiber->thread)) {
      store.Write();
    } else {
      kept.push_back(store);
    }
  }
  fiber->block->pending = std::move(kept);
}

bool CopiesInBulk() { return machine->now->block->copies_in_bulk; }
void FenceBulk() {
  if (!kSanitized) BringOut();
  machine->now->fenced = true;
}
bool IsFenced() { return machine->now->fenced; }
BulkUnit& UnitOfThread() {
  const Fiber& fiber = *machine->now;
  return fiber.block->bulk[fiber.thread];
}
uint8_t* DynamicShared() { return machine->now->block->dynamic_shared.data(); }

}  // namespace axccl::fibers
