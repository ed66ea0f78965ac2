// What is sent to members that do not share this rank's memory, signal by signal, and which rank receives messages.
#include "src/exec/host/outbox.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/plan/text.h"
#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

using transport::Reach;

// Records its calls, a letter each: Begin, Look, Sleep, End.
class FakeInbox : public transport::Inbox {
 public:
  void Progress() override { calls += 'L'; }
  void BeginPolling() override { calls += 'B'; }
  void EndPolling(bool waiting) override { calls += waiting ? 'S' : 'E'; }
  std::string calls;
};

struct Message {
  std::vector<Reach::Stretch> stretches;
  uint64_t line;
};

class FakeMirror : public Reach {
 public:
  FakeMirror(transport::PeerProcess* process, std::byte* block, FakeInbox* inbox)
      : Reach(process, block), inbox_(inbox) {}
  const char* Name() const override { return "fake"; }
  transport::Inbox* inbox() const override { return inbox_; }
  bool TryCalls(uint64_t, uint64_t) override { return false; }
  Status Read(void*, uint64_t, size_t) override { return MakeStatus(Code::kInternalError, "no calls"); }
  void Publish(const std::shared_ptr<Area>&, std::span<const Stretch> stretches, LineAt line) override {
    messages.push_back({{stretches.begin(), stretches.end()}, line.offset});
  }
  std::vector<Message> messages;

 private:
  FakeInbox* const inbox_;
};

TEST(Outbox, TheThreadThatDrivesTheOperationReceives) {
  FakeInbox inbox;
  const auto calls = [&] { return std::exchange(inbox.calls, ""); };
  {
    Outbox outbox(&inbox);
    outbox.TakeMessages(false);
    EXPECT_EQ(calls(), "B");
    outbox.TakeMessages(true);
    outbox.TakeMessages(true);
    EXPECT_EQ(calls(), "LL");
    outbox.Sleep();
    EXPECT_EQ(calls(), "S");
    outbox.TakeMessages(true);
    EXPECT_EQ(calls(), "L") << "the last look before the thread sleeps";
    outbox.TakeMessages(true);
    EXPECT_EQ(calls(), "BL") << "it is awake";
    outbox.Close();
    outbox.Close();
    EXPECT_EQ(calls(), "E");
    outbox.TakeMessages(false);
    EXPECT_EQ(calls(), "B");
  }
  EXPECT_EQ(calls(), "E") << "an operation that ends early leaves no thread polling";
}

TEST(Outbox, WithoutAnInboxDoesNothing) {
  Outbox outbox(nullptr);
  outbox.TakeMessages(true);
  outbox.Sleep();
  outbox.Close();
}

// Rank 0 of three: it has a mirror of rank 1, and shares memory with rank 2.
class OutboxTest : public testing::Test {
 protected:
  static constexpr uint64_t kScratch = 64u << 10;

  OutboxTest()
      : ensemble_([] {
          EnsembleOptions options;
          options.ranks = 3;
          options.layout = Layout::kHeap;
          options.algorithms = "all_gather:oneshot";
          options.scratch_bytes = kScratch;
          return options;
        }()) {
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) members.push_back(ensemble_.MakeMember(0, rank));
    mirror_ = std::make_unique<FakeMirror>(ensemble_.process(1).peer(), members[1].block, &inbox_);
    members[1].reach = mirror_.get();
    members[1].machine = 1;
    channel_.emplace(ensemble_.owner(0), std::move(members), 0, ChannelOptions{.device = &ensemble_});
    call_.kind = plan::Kind::kAllGather;
    call_.type = DataType::kUint16;
  }
  // Starts a call on blocks of so many elements of two bytes.
  void Start(uint64_t count) {
    call_.count = count;
    binding_.emplace(&*channel_, call_);
    const Result<const Prepared*> prepared = binding_->host->plans().Prepare(call_, tune::Access::kNone);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    binding_->prepared = prepared.value();
    outbox_.emplace(channel_->members().inbox());
  }
  std::vector<Step> AllSignals() const {
    std::vector<Step> signals = binding_->prepared->program->lanes[0];
    std::erase_if(signals, [](const Step& step) { return step.kind != plan::OpKind::kSignal; });
    return signals;
  }
  size_t Signals() const { return AllSignals().size(); }
  // Sends all signals of a turn; returns what was published.
  std::vector<Message> SendAll(uint64_t turn) {
    for (const Step& step : binding_->prepared->program->lanes[0]) {
      if (step.kind == plan::OpKind::kSignal) outbox_->Send(*binding_, step, 0, turn);
    }
    return std::exchange(mirror_->messages, {});
  }
  const ChannelLayout& layout() const { return channel_->own().layout; }
  // Returns the stretches other than the record.
  static std::vector<Reach::Stretch> Slots(const std::vector<Message>& messages) {
    std::vector<Reach::Stretch> slots;
    for (const Message& message : messages) {
      for (const Reach::Stretch& stretch : message.stretches) {
        if (!stretch.guarded) slots.push_back(stretch);
      }
    }
    return slots;
  }
  static std::vector<Reach::Stretch> Records(const std::vector<Message>& messages) {
    std::vector<Reach::Stretch> records;
    for (const Message& message : messages) {
      for (const Reach::Stretch& stretch : message.stretches) {
        if (stretch.guarded) records.push_back(stretch);
      }
    }
    return records;
  }

  Ensemble ensemble_;
  FakeInbox inbox_;
  std::unique_ptr<FakeMirror> mirror_;
  std::optional<Channel> channel_;
  Call call_;
  std::optional<Binding> binding_;
  std::optional<Outbox> outbox_;
};

TEST_F(OutboxTest, ASlotGoesWithTheSignalThatPublishesIt) {
  Start(1000);
  for (const uint64_t turn : {0, 1, 2}) {
    binding_->host->turns() = Turns(turn);
    const std::vector<Message> messages = SendAll(turn);
    const std::vector<Reach::Stretch> slots = Slots(messages);
    ASSERT_EQ(slots.size(), 1u);
    EXPECT_EQ(slots[0].bytes, 2000u);
    const uint64_t half = layout().scratch + turn % 2 * (kScratch / 2);
    EXPECT_GE(slots[0].offset, half);
    EXPECT_LE(slots[0].offset + slots[0].bytes, half + kScratch / 2);
    EXPECT_EQ(messages[0].line, layout().OffsetOfLine(0, AllSignals()[0].endpoint, turn));
  }
}

TEST_F(OutboxTest, ASmallSlotTravelsInItsLine) {
  Start(16);
  const std::vector<Message> messages = SendAll(0);
  EXPECT_FALSE(messages.empty());
  EXPECT_TRUE(Slots(messages).empty());
}

TEST_F(OutboxTest, EachMemberGetsTheRecordOnce) {
  Start(1000);
  for (const uint64_t sequence : {0, 1, 17}) {
    binding_->sequence = sequence;
    const std::vector<Message> first = SendAll(0);
    ASSERT_EQ(Records(first).size(), 1u);
    const Reach::Stretch& record = first[0].stretches[0];
    EXPECT_TRUE(record.guarded);
    EXPECT_EQ(record.offset, layout().OffsetOfRecord(sequence) + offsetof(OpRecord, sequence));
    EXPECT_EQ(record.bytes, 4 * sizeof(uint64_t)) << "sequence, call, count and plan";
    EXPECT_TRUE(Records(SendAll(0)).empty()) << sequence;
  }
}

// An announcement arrives completely before the record that refers to it.
TEST_F(OutboxTest, LongAnnouncementsGoBeforeTheRecord) {
  Start(1000);
  ViewOperand operand;
  operand.block_bytes = 1000;
  binding_->call.views = std::make_shared<const ViewList>(ViewList{{operand}});
  for (const uint64_t words : {OpRecord::kRoom, OpRecord::kRoom + 1, OpRecord::kRoom + 2}) {
    binding_->sequence += 1;
    binding_->announced_words = words;
    const std::vector<Message> messages = SendAll(0);
    ASSERT_EQ(Records(messages).size(), 1u);
    EXPECT_EQ(Records(messages)[0].bytes, sizeof(OpRecord) - offsetof(OpRecord, sequence));
    const bool apart = words > OpRecord::kRoom;
    EXPECT_EQ(messages[0].stretches[0].guarded, !apart);
    if (!apart) continue;
    const uint64_t half = binding_->sequence % 2 * layout().announcement_words * sizeof(uint64_t);
    EXPECT_EQ(messages[0].stretches[0].offset, layout().announcements + half);
    EXPECT_EQ(messages[0].stretches[0].bytes, words * sizeof(uint64_t));
    EXPECT_TRUE(messages[0].stretches[1].guarded);
  }
}

// Each rank has a slot of its own to read; it gets no slots of the others.
TEST_F(OutboxTest, AMemberGetsWhatItReads) {
  call_.kind = plan::Kind::kAllToAll;
  Start(1000);
  const Prepared& prepared = *binding_->prepared;
  std::vector<uint64_t> read[3];  // offsets, by reader
  for (uint32_t step = 0; step < prepared.program->lanes[0].size(); ++step) {
    for (const Outbound::Slot& slot : prepared.outbound->With(0, step)) {
      const auto owner = static_cast<uint16_t>(slot.of_reader ? slot.reader : 0);
      const plan::Operand operand{plan::Buffer::kScratch, owner, 0, slot.slot, 1};
      read[slot.reader].push_back(binding_->host->plans().PlaceOfSlot(prepared, 0, operand).offset[0]);
    }
  }
  ASSERT_FALSE(read[1].empty());
  ASSERT_NE(read[1], read[2]);
  const std::vector<Reach::Stretch> slots = Slots(SendAll(0));
  std::vector<uint64_t> sent;
  for (const Reach::Stretch& slot : slots) sent.push_back(slot.offset);
  EXPECT_EQ(sent, read[1]);
}

// The slots that rank 1 reads of rank 0's after one signal.
Outbound Publishing(const std::vector<int>& slots) {
  std::string text =
      "axccl-plan 1\nalgorithm test\nkind all_gather\nranks 3\nroot 0\nparts 1\nlanes 1\nslots 3\nendpoints 1\n"
      "direct no\ninline - - -\nrank 0 lane 0\n";
  int op = 0;
  const auto add = [&](const std::string& line) { text += "#" + std::to_string(op++) + " " + line + "\n"; };
  for (const int slot : slots) add("copy slot[0]." + std::to_string(slot) + " <- in[0].0.0");
  add("signal 1 e0");
  text += "rank 1 lane 0\n";
  add("wait 0 e0 v1");
  for (const int slot : slots) add("copy out[1].0.0 <- slot[0]." + std::to_string(slot));
  text += "rank 2 lane 0\n";
  Result<plan::Schedule> schedule = plan::Parse(text);
  EXPECT_TRUE(schedule.ok()) << schedule.status().message();
  Result<Outbound> outbound = Outbound::Make(schedule.value(), 0);
  EXPECT_TRUE(outbound.ok()) << outbound.status().message();
  return std::move(outbound).value();
}

// Slots start at lines. A gap that is shorter than a line belongs to the slot before it, so neighbours are sent as one
// stretch.
TEST_F(OutboxTest, NeighbouringSlotsAreOneStretch) {
  call_.kind = plan::Kind::kAllToAll;  // three slots or more
  const struct {
    std::vector<int> slots;
    uint64_t count;
    std::vector<std::pair<uint64_t, uint64_t>> stretches;  // offset, bytes
  } cases[] = {
      {{0, 1, 2}, 1000, {{0, 6096}}}, {{0, 1}, 1024, {{0, 4096}}},   {{0, 2}, 1000, {{0, 2000}, {4096, 2000}}},
      {{1, 2}, 993, {{2048, 4034}}},  {{0, 1, 2}, 992, {{0, 5952}}},
  };
  for (const auto& c : cases) {
    Start(c.count);
    ASSERT_GE(binding_->prepared->program->plan->schedule.slots, 3u);
    Prepared prepared = *binding_->prepared;
    const auto program = std::make_shared<Program>(*prepared.program);
    Step signal = AllSignals()[0];
    signal.peer = 1;
    program->lanes[0].assign(c.slots.size() + 1, signal);  // only the last one sends
    prepared.program = program;
    prepared.outbound = std::make_shared<const Outbound>(Publishing(c.slots));
    binding_->prepared = &prepared;
    outbox_->Send(*binding_, program->lanes[0].back(), 0, 0);
    const plan::Operand first{plan::Buffer::kScratch, 0, 0, 0, 1};
    const uint64_t begin = binding_->host->plans().PlaceOfSlot(prepared, 0, first).offset[0];
    std::vector<std::pair<uint64_t, uint64_t>> sent;
    for (const Reach::Stretch& slot : Slots(std::exchange(mirror_->messages, {})))
      sent.emplace_back(slot.offset - begin, slot.bytes);
    EXPECT_EQ(sent, c.stretches) << c.count << " elements, " << c.slots.size() << " slots";
  }
}

TEST_F(OutboxTest, OnlyMirrorsGetMessages) {
  Start(1000);
  Prepared prepared = *binding_->prepared;
  const auto program = std::make_shared<Program>(*prepared.program);
  prepared.program = program;
  binding_->prepared = &prepared;
  for (const int peer : {2, 1, int{plan::kAllPeers}}) {
    for (Step& step : program->lanes[0]) step.peer = static_cast<int16_t>(peer);
    EXPECT_EQ(SendAll(0).size(), peer == 2 ? 0 : Signals()) << peer;
  }
}

}  // namespace
}  // namespace axccl::exec
