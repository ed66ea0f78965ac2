#include "transports/remote/reach.h"

#include <sys/mman.h>

#include <utility>

#include "src/base/format.h"
#include "src/base/log.h"

namespace axccl::remote {
namespace {

constexpr uint32_t kOwnerDied = 0x40000000u;   // what the kernel sets in a robust futex
constexpr std::chrono::milliseconds kLook(5);  // while waiting for a flush
constexpr size_t kMostStates = 256;            // places that states are about
constexpr const char* kNonsense = "it sent what is no message";

}  // namespace

class Reach::Mirror final : public transport::PeerProcess {
 public:
  static constexpr uint64_t kBlockOffset = transport::kPageBytes;

  Mirror(const ConnectOptions& options, std::byte* heap) {
    pid_ = options.pid;
    heap_bytes_ = kBlockOffset + options.block_bytes;
    heap_ = heap;
  }
  ~Mirror() override { munmap(heap_, heap_bytes_); }
  std::byte* block() const { return heap_ + kBlockOffset; }

 private:
  Result<std::byte*> MapMore(uint64_t, uint64_t) override { return static_cast<std::byte*>(nullptr); }
};

Result<std::shared_ptr<Reach::Mirror>> Reach::MakeMirror(const ConnectOptions& options) {
  AXCCL_ASSIGN_OR_RETURN(std::byte* const heap, MapMirror(Mirror::kBlockOffset + options.block_bytes, options.peer));
  return std::make_shared<Mirror>(options, heap);
}

Reach::Reach(std::mutex* mutex, ConnectOptions options, std::shared_ptr<Mirror> mirror)
    : transport::Reach(mirror.get(), mirror->block()),
      options_(std::move(options)),
      mutex_(mutex),
      mirror_(std::move(mirror)),
      block_(std::make_shared<Memory>(0, options_.block, mirror_->block(), options_.block_bytes)) {}

Reach::~Reach() = default;

Result<std::byte*> Reach::AddArea(uint64_t key, std::byte* own, uint64_t, uint64_t bytes, std::shared_ptr<Area>* area) {
  AXCCL_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory, Memory::WithMirror(key, own, bytes, options_.peer));
  std::byte* const mirror = memory->mirror();
  std::lock_guard lock(*mutex_);
  std::erase_if(areas_, [](const auto& entry) { return entry.second.expired(); });
  areas_[key] = memory;
  *area = std::move(memory);
  return mirror;
}

Status Reach::Read(void*, uint64_t, size_t) {
  return MakeStatus(Code::kInternalError, "rank %u on another machine is read by system call", options_.peer);
}

std::shared_ptr<Memory> Reach::Find(uint64_t area) const {
  if (area == 0) return block_;
  const auto it = areas_.find(area);
  return it != areas_.end() ? it->second.lock() : nullptr;
}

void Reach::Lose(const std::string& why) {
  DropUnsent();
  if (detached_ || lost_) return;
  lost_ = true;
  trouble_ = why;
  // The messages that these wait for will not arrive.
  arrivals_.Drop();
  __atomic_fetch_or(reinterpret_cast<uint32_t*>(&page()->liveness), kOwnerDied, __ATOMIC_SEQ_CST);
  options_.arrived();
}

std::string Reach::Place() const { return Format("pid %u on host %s", options_.pid, options_.host.c_str()); }

std::string Reach::Trouble() const {
  std::lock_guard lock(*mutex_);
  return trouble_;
}

std::string Reach::DescribeLoss(int self, int peer) const {
  return Format("rank %d cannot reach rank %d (%s) any more: %s", self, peer, Place().c_str(), Trouble().c_str());
}

// ---- what arrives ----

bool Reach::Admit(const Message& message, size_t bytes, Admission* admitted) {
  if (lost_) return false;  // given up, so its messages are ignored
  admitted->memory = Find(message.head.area);
  bool fits = admitted->memory == nullptr || FitsMemory(message, admitted->memory->bytes(), bytes);
  if (fits && admitted->memory != nullptr && !admitted->memory->FitsDevice(message)) return Lose(kNonsense), false;
  // Ranks that differ in what they have created have areas of different sizes. The comparison of their calls says so.
  if (!fits && message.head.area != 0) {
    admitted->memory = nullptr;
    fits = true;
  }
  if (fits && arrivals_.Expects(message.head.turn, &admitted->number)) return true;
  if (fits && HasComeBefore(message)) return false;
  Lose(kNonsense);
  return false;
}

void Reach::Take(const Admission& admitted, const Message& message, const void* data, size_t bytes) {
  const std::shared_ptr<Memory>& memory = admitted.memory;
  const bool next = arrivals_.IsNext(admitted.number);
  if (memory != nullptr && (next || bytes >= kLargeBytes)) memory->Store(message, data);
  if (next || bytes >= kLargeBytes || memory == nullptr) return TakeStored(admitted, message);
  auto incoming = std::make_shared<Incoming>();
  incoming->message = message;
  incoming->memory = memory;
  const auto* const from = static_cast<const std::byte*>(data);
  incoming->kept.assign(from, from + bytes);
  incoming->here = true;
  arrivals_.Hold(admitted.number, std::move(incoming));
}

// What other processes were to pass on is sent again, by other ways, unless it is known that it has come.
bool Reach::HasComeBefore(const Message& message) const {
  return (message.head.flags & kRepeats) != 0 && arrivals_.HasCome(message.head.turn);
}

void Reach::TakeStored(const Admission& admitted, const Message& message) {
  uint64_t number = 0;
  if (lost_ || detached_) return;
  // Another with its number may have come meanwhile.
  if (!arrivals_.Expects(message.head.turn, &number)) return HasComeBefore(message) ? void() : Lose(kNonsense);
  if (arrivals_.IsNext(admitted.number)) {
    arrivals_.Pass();
    if ((message.head.flags & kState) != 0) (void)NoteState(message, kInTurn);
    if (admitted.memory != nullptr) Deliver(*admitted.memory, message.head);
    return Settle();
  }
  auto incoming = std::make_shared<Incoming>();
  incoming->message = message;
  incoming->memory = admitted.memory;
  incoming->here = true;
  arrivals_.Hold(admitted.number, std::move(incoming));
}

void Reach::TakeState(const Message& message, const void* data, size_t bytes) {
  if (lost_ || detached_) return;
  if (message.head.area != 0 || !FitsMemory(message, block_->bytes(), bytes)) return Lose(kNonsense);
  if (message.on_device()) return Lose(kNonsense);
  if (!NoteState(message, message.head.turn)) return;
  block_->Store(message, data);
  Deliver(*block_, message.head);
}

void Reach::Settle() {
  while (const std::shared_ptr<Incoming> next = arrivals_.TakeNext()) {
    if (next->flush.kind != 0) {
      AnswerFlush(next->way, Answer(next->flush));
    } else if (!detached_ && next->memory != nullptr) {
      if ((next->message.head.flags & kState) != 0) (void)NoteState(next->message, kInTurn);
      if (!next->kept.empty()) next->memory->Store(next->message, next->kept.data());
      Deliver(*next->memory, next->message.head);
    }
  }
}

// Whether it is newer than what has come of its place: its line, or where its first stretch is.
bool Reach::NoteState(const Message& message, uint32_t number) {
  const bool of_line = message.head.line != transport::Reach::kNoLine || message.head.stretches == 0;
  uint32_t& newest = states_[of_line ? message.head.line : message.stretch[0].offset];
  if (states_.size() > kMostStates) return Lose(kNonsense), false;
  if (number <= newest) return false;
  newest = number;
  return true;
}

void Reach::Deliver(const Memory& memory, const WireHeader& header) {
  memory.StoreLine(header);
  options_.arrived();
}

void Reach::TakeControl(const void* way, const WireControl& control) {
  if (control.kind == WireControl::kFlushed) {
    if (control.number > flushed_ && control.number <= flushes_) flushed_ = control.number;
    return Flushed();
  }
  if (control.kind != WireControl::kFlush) return;
  if (lost_) return AnswerFlush(way, Answer(control));
  uint64_t number = 0;
  if (!arrivals_.Expects(control.turn, &number)) return Lose(kNonsense);
  auto flush = std::make_shared<Incoming>();
  flush->flush = control;
  flush->way = way;
  flush->here = true;
  arrivals_.Hold(number, std::move(flush));
  Settle();
}

void Reach::BeginFlush() {
  std::lock_guard lock(*mutex_);
  if (failed()) return;
  for (size_t lane = 0; lane < lanes(); ++lane) SendFlush(lane, ++flushes_);
}

void Reach::AwaitFlush(std::chrono::milliseconds patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(*mutex_);
  if (lanes() == 0 || flushes_ == 0) {  // there were no lanes when the flush began
    lock.unlock();
    AwaitAside(limit);
    lock.lock();
    if (failed()) return;
    for (size_t lane = 0; lane < lanes(); ++lane) SendFlush(lane, ++flushes_);
  }
  const uint32_t number = flushes_;
  while (flushed_ < number && !failed()) {
    if (std::chrono::steady_clock::now() > limit) {
      AXCCL_INFO(kNet, "rank %u on another machine (pid %u) does not answer; what it was sent last may be lost",
                 options_.peer, options_.pid);
      return;
    }
    ReceiveOnce(&lock);
    if (flushed_ < number && !failed()) changed().wait_for(lock, kLook);
  }
}

}  // namespace axccl::remote
