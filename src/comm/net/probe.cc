#include "src/comm/net/probe.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/exec/host/polling.h"
#include "transports/shm/heap.h"

namespace axccl::comm {

namespace {

using device::host::Poll;
using device::host::Scheduler;
using transport::Reach;

// A channel's key has zeros in its low bits, and the block's key is 0.
constexpr uint64_t kAreaKey = 1;
constexpr uint64_t kLine = 0, kData = 4096;  // offsets
constexpr uint32_t kLeastPiece = 16u << 10, kMostPiece = 128u << 10;
constexpr uint64_t kAreaBytes = kData + kMostPiece;

// The first word of a line: the number of the message, and its kind.
enum Kind : uint64_t { kQuiet, kAsk, kEnd, kGaveUp, kKinds };

// Parameters of the measurement.
constexpr uint64_t kWarmUp = 2;  // the first message establishes the connection
constexpr size_t kRounds = 16, kFewestRounds = 5;
constexpr double kRoundsBudget = 2e-3;
constexpr int kBursts = 3;
constexpr uint64_t kBurst = 32;    // messages
constexpr uint64_t kInFlight = 4;  // pieces
constexpr double kGrowing = 2e-3, kSending = 5e-3;
// Bytes of one transfer: enough for a mean that exceeds what buffers on the way absorb, and no more than is useful.
constexpr uint64_t kFewestBytes = 128u << 10, kMostBytes = 1u << 20;
constexpr int kTransfers = 3;  // if there is time for them

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

// What both sides share: work that receives messages, takes a step with each, and is woken by its doorbell.
class NetworkProbe::Side : public device::host::Work {
 public:
  explicit Side(const NetworkProbe& probe)
      : reach_(probe.peer_.reach),
        area_(probe.area_),
        mirror_(probe.mirror_),
        memory_(probe.memory_),
        own_(probe.own_) {}

  Poll Progress() override {
    if (cancelled_.load(std::memory_order_acquire)) return Finish();
    if (!std::exchange(last_look_, false)) polling_.Begin(reach_->inbox());
    reach_->inbox()->Progress();
    if (Heard() % kKinds == kGaveUp) {
      gave_up_.store(true, std::memory_order_relaxed);
      return Finish();
    }
    const bool moved = Step();
    if (over_) return Finish();
    return moved ? Poll::kAgain : Poll::kBlocked;
  }
  void Arm(int doorbell) override {
    own_->waiter.store(static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
    polling_.End(true);
    last_look_ = true;
  }

  bool done() const { return done_.load(std::memory_order_acquire); }
  bool gave_up() const { return gave_up_.load(std::memory_order_relaxed); }
  void Cancel() { cancelled_.store(true, std::memory_order_release); }

 protected:
  // Returns whether there was anything to do; sets over_ after the last step.
  virtual bool Step() = 0;

  // The number in the peer's last line.
  uint64_t Heard() const {
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(mirror_ + kLine), __ATOMIC_ACQUIRE);
  }
  void Say(uint64_t number, Kind kind, std::span<const Reach::Stretch> data = {}) {
    const uint64_t word = number * kKinds + kind;
    std::memcpy(memory_ + kLine, &word, sizeof(word));
    reach_->Publish(area_, data, kLine);
  }
  bool over_ = false;

 private:
  Poll Finish() {
    polling_.End(false);
    done_.store(true, std::memory_order_release);
    return Poll::kDone;
  }

  const std::shared_ptr<Reach> reach_;
  const std::shared_ptr<Reach::Area> area_;
  const std::byte* const mirror_;
  std::byte* const memory_;
  exec::BlockHeader* const own_;
  exec::Polling polling_;
  bool last_look_ = false;
  std::atomic<bool> done_{false}, cancelled_{false}, gave_up_{false};
};

class NetworkProbe::Answerer final : public Side {
 public:
  using Side::Side;

 private:
  bool Step() override {
    const uint64_t heard = Heard();
    if (heard == answered_) return false;
    answered_ = heard;
    over_ = heard % kKinds == kEnd;
    if (heard % kKinds == kAsk) Say(heard / kKinds, kQuiet);
    return true;
  }
  uint64_t answered_ = 0;
};

class NetworkProbe::Asker final : public Side {
 public:
  using Side::Side;

  cost::Network Result() const {
    // The processor time at each end is part of the time of a message there and back.
    const double one_way = round_trip_ / 2;
    return cost::Plausible(
        {std::max(one_way - message_, one_way / 2), std::min(message_, one_way / 2), bytes_per_second_});
  }

 private:
  enum class Stage { kRounds, kBursts, kBulk };
  // The time at which that many bytes had been answered.
  struct Mark {
    double time = 0;
    uint64_t bytes = 0;
  };

  bool Step() override {
    const uint64_t answered = Heard() / kKinds;
    if (stage_ == Stage::kBulk) return Transfer(answered);
    if (answered != asked_) return false;
    const double now = Now();
    stage_ == Stage::kRounds ? Round(now) : Burst(now);
    return true;
  }

  void Round(double now) {
    if (asked_ == kWarmUp) begin_ = now;
    if (asked_ > kWarmUp) rounds_.push_back(now - sent_at_);
    const bool enough = rounds_.size() >= kRounds || (rounds_.size() >= kFewestRounds && now - begin_ > kRoundsBudget);
    if (enough) {
      std::nth_element(rounds_.begin(), rounds_.begin() + static_cast<ptrdiff_t>(rounds_.size() / 2), rounds_.end());
      round_trip_ = rounds_[rounds_.size() / 2];
      stage_ = Stage::kBursts;
      return Burst(now);
    }
    sent_at_ = Now();
    Say(++asked_, kAsk);
  }

  void Burst(double now) {
    // The shortest counts: disturbances only make a burst longer.
    if (bursts_ > 0) message_ = std::min(message_, std::max(sending_, now - sent_at_ - round_trip_) / kBurst);
    if (bursts_++ == kBursts) {
      stage_ = Stage::kBulk;
      bulk_began_ = Now();
      BeginTransfer();
      return;
    }
    sent_at_ = Now();
    for (uint64_t i = 1; i < kBurst; ++i) Say(++asked_, kQuiet);
    Say(++asked_, kAsk);
    sending_ = Now() - sent_at_;
  }

  void BeginTransfer() {
    before_ = asked_;
    begin_ = Now();
    sent_.clear();
    marks_.assign(1, {begin_, 0});
    (void)Transfer(asked_);
  }

  bool Transfer(uint64_t answered) {
    const double now = Now();
    // The peer's number is checked: it must be one that was requested.
    const bool news = answered > before_ && answered <= asked_ && sent_[answered - before_ - 1] > marks_.back().bytes;
    if (news) marks_.push_back({now, sent_[answered - before_ - 1]});
    const uint64_t arrived = marks_.back().bytes;
    // Doubles the piece whenever four have arrived, as long as that takes no noticeable time.
    while (news && now - begin_ < kGrowing && piece_ < kMostPiece && arrived >= 2 * kInFlight * piece_) piece_ *= 2;
    bool moved = news;
    const uint64_t under_way =
        asked_ - before_ -
        static_cast<uint64_t>(std::count_if(sent_.begin(), sent_.end(), [&](uint64_t s) { return s <= arrived; }));
    for (uint64_t room = kInFlight - std::min(kInFlight, under_way); room > 0 && WantsMore(now); --room, moved = true) {
      const Reach::Stretch data{kData, piece_, false, false};
      sent_.push_back(Sent() + piece_);
      Say(++asked_, kAsk, {&data, 1});
    }
    if (arrived == Sent() && !WantsMore(now)) EndTransfer();
    return moved;
  }

  uint64_t Sent() const { return sent_.empty() ? 0 : sent_.back(); }
  bool WantsMore(double now) const { return Sent() < kMostBytes && (now - begin_ < kSending || Sent() < kFewestBytes); }

  // The second half counts: before, pieces may be small, and buffers on the way empty.
  void EndTransfer() {
    const Mark last = marks_.back();
    const auto half =
        std::find_if(marks_.rbegin(), marks_.rend(), [&](const Mark& m) { return m.bytes <= last.bytes / 2; });
    const double rate = static_cast<double>(last.bytes - half->bytes) / std::max(last.time - half->time, 1e-9);
    bytes_per_second_ = std::max(bytes_per_second_, rate);
    if (++transfers_ < kTransfers && last.time - bulk_began_ < kSending) return BeginTransfer();
    Say(++asked_, kEnd);
    over_ = true;
  }

  Stage stage_ = Stage::kRounds;
  uint64_t asked_ = 0;  // messages
  double sent_at_ = 0, begin_ = 0;
  std::vector<double> rounds_;
  double round_trip_ = 0;
  int bursts_ = 0;
  double sending_ = 0;
  double message_ = std::numeric_limits<double>::infinity();
  double bulk_began_ = 0;
  int transfers_ = 0;
  uint64_t before_ = 0;  // the last message before the first piece of the transfer
  uint32_t piece_ = kLeastPiece;
  std::vector<uint64_t> sent_;  // [piece]: bytes up to its end
  std::vector<Mark> marks_;
  double bytes_per_second_ = 0;
};

Result<std::unique_ptr<NetworkProbe>> NetworkProbe::Create(Peer peer, exec::BlockHeader* own) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(void* const memory, heap->Allocate(kAreaBytes, kData));
  std::unique_ptr<NetworkProbe> probe(new NetworkProbe(std::move(peer), own));
  probe->memory_ = static_cast<std::byte*>(memory);
  AXCCL_ASSIGN_OR_RETURN(probe->mirror_,
                         probe->peer_.reach->AddArea(kAreaKey, probe->memory_, 0, kAreaBytes, &probe->area_));
  return probe;
}

NetworkProbe::~NetworkProbe() {
  const auto heap = shm::Heap::Get();
  if (memory_ != nullptr && heap.ok()) (void)heap.value()->Free(memory_).ok();
}

void* NetworkProbe::TakeMemory() { return peer_.reach->sending() ? std::exchange(memory_, nullptr) : nullptr; }

void NetworkProbe::GiveUp() {
  if (std::exchange(over_, true) || peer_.reach->Died()) return;
  const uint64_t word = kGaveUp;
  std::memcpy(memory_ + kLine, &word, sizeof(word));
  peer_.reach->Publish(area_, {}, kLine);
}

Status NetworkProbe::Trouble(const Patience& patience) const {
  const Reach& reach = *peer_.reach;
  const char* const measuring = "while the network was measured";
  if (reach.Died())
    return MakeStatus(Code::kRemoteError, "rank %d (%s) was lost %s: %s", peer_.rank, reach.Place().c_str(), measuring,
                      reach.Trouble().c_str());
  if (patience.abort != nullptr && patience.abort->load(std::memory_order_relaxed))
    return MakeStatus(Code::kRemoteError, "aborted by the caller %s", measuring);
  if (std::chrono::steady_clock::now() < patience.deadline) return Status();
  return MakeStatus(Code::kTimeout, "rank %d (%s) did not answer in time %s (AXCCL_INIT_TIMEOUT)", peer_.rank,
                    reach.Place().c_str(), measuring);
}

Status NetworkProbe::Wait(const std::shared_ptr<Side>& side, device::host::Queue* queue, const Patience& patience) {
  auto item = std::make_unique<device::host::Item>();
  item->work = side;
  queue->Push(std::move(item));
  Status trouble;
  const bool done = Scheduler::Process().Wait(
      queue, [&] { return side->done(); },
      [&] {
        trouble = CatchAll("measuring the network", [&] { return Trouble(patience); });
        return !trouble.ok();
      });
  if (!done) {
    side->Cancel();
    // The next thread that drives it ends it; then no thread accesses the block for it any more.
    (void)Scheduler::Process().Wait(
        queue, [&] { return side->done(); }, [] { return false; });
    return trouble;
  }
  if (side->gave_up())
    return MakeStatus(Code::kRemoteError, "rank %d (%s) gave up while the network was measured", peer_.rank,
                      peer_.reach->Place().c_str());
  over_ = true;
  return Status();
}

Result<cost::Network> NetworkProbe::Measure(device::host::Queue* queue, const Patience& patience) {
  const auto asker = std::make_shared<Asker>(*this);
  AXCCL_RETURN_IF_ERROR(Wait(asker, queue, patience));
  return asker->Result();
}

Status NetworkProbe::Answer(device::host::Queue* queue, const Patience& patience) {
  return Wait(std::make_shared<Answerer>(*this), queue, patience);
}

}  // namespace axccl::comm
