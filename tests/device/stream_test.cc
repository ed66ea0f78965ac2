#include "src/device/host/stream.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/device/work.h"

namespace axccl::device::host {
namespace {

class StreamTest : public testing::Test {
 protected:
  std::shared_ptr<Stream> NewStream(bool blocking) {
    auto stream = std::make_shared<Stream>(device_->ordinal(), blocking);
    device_->AddStream(stream);
    return stream;
  }
  std::shared_ptr<GatedWork> SubmitGate(Stream* stream) {
    auto gate = std::make_shared<GatedWork>();
    Submit(device_, stream, gate);
    return gate;
  }
  // Submits work that ends as soon as it may begin.
  std::shared_ptr<TestWork> SubmitProbe(Stream* stream) {
    auto probe = std::make_shared<TestWork>([] { return Poll::kDone; });
    Submit(device_, stream, probe);
    return probe;
  }
  Stream* null() { return device_->null_stream(); }
  bool Runs(const std::shared_ptr<TestWork>& probe) {
    return WaitThrough(device_->queue(), [&] { return probe->done.load(); });
  }
  // Whether the probe has not run although everything that can run had its turn.
  bool HeldBack(const std::shared_ptr<TestWork>& probe) {
    for (int i = 0; i < 20; ++i) device_->queue()->Drive();
    return !probe->done;
  }
  void Open(const std::shared_ptr<GatedWork>& gate) {
    gate->open = true;
    ASSERT_TRUE(WaitThrough(device_->queue(), [&] { return gate->done.load(); }));
  }
  void Finish() {
    for (const Mark& mark : device_->AllWork())
      ASSERT_TRUE(WaitThrough(device_->queue(), [&] { return mark.Reached(); }));
  }
  bool Reaches(const Mark& mark) {
    return WaitThrough(device_->queue(), [&] { return mark.Reached(); });
  }

  Device* const device_ = Device::Get(NextDevice());
};

TEST_F(StreamTest, WorkOfAStreamIsInOrderAndStreamsAreIndependent) {
  const auto a = NewStream(true), b = NewStream(true);
  const auto gate = SubmitGate(a.get());
  const auto behind = SubmitProbe(a.get()), beside = SubmitProbe(b.get());
  EXPECT_TRUE(Runs(beside));
  EXPECT_TRUE(HeldBack(behind));
  Open(gate);
  Finish();
  EXPECT_TRUE(behind->done);
}

// ---- the NULL stream ----

TEST_F(StreamTest, NullStreamWaitsForBlockingStreamsAndHoldsThemBack) {
  const auto a = NewStream(true), b = NewStream(true), free = NewStream(false);
  const auto gate = SubmitGate(a.get());
  const auto in_null = SubmitProbe(null());
  const auto later = SubmitProbe(b.get()), apart = SubmitProbe(free.get());
  EXPECT_TRUE(Runs(apart)) << "a non-blocking stream takes no part";
  EXPECT_TRUE(HeldBack(in_null));
  EXPECT_TRUE(HeldBack(later)) << "enqueued behind the NULL stream's work";
  Open(gate);
  Finish();
  EXPECT_TRUE(in_null->done && later->done);
}

TEST_F(StreamTest, NullStreamIgnoresNonBlockingStreams) {
  const auto free = NewStream(false);
  const auto gate = SubmitGate(free.get());
  EXPECT_TRUE(Runs(SubmitProbe(null())));
  Open(gate);
  Finish();
}

TEST_F(StreamTest, NullStreamWaitsForDestroyedStreams) {
  auto stream = NewStream(true);
  const auto gate = SubmitGate(stream.get());
  const TimelinePtr timeline = stream->timeline();
  stream.reset();
  (void)NewStream(true);  // scans the list of streams
  const auto in_null = SubmitProbe(null());
  EXPECT_TRUE(HeldBack(in_null));
  bool listed = false;
  for (const Mark& mark : device_->AllWork()) listed |= mark.timeline == timeline;
  EXPECT_TRUE(listed) << "a wait for the device includes destroyed streams";
  Open(gate);
  Finish();
  EXPECT_TRUE(in_null->done);
}

TEST_F(StreamTest, DestroyedIdleStreamsAreForgotten) {
  for (int i = 0; i < 100; ++i) (void)NewStream(true);
  EXPECT_LE(device_->AllWork().size(), 3u);
}

// ---- tickets that are ready at once ----

TEST_F(StreamTest, EnqueueIdleTakesATicketOnlyIfThereIsNothingToWaitFor) {
  const auto stream = NewStream(true);
  const auto take = [&](Stream* s) {
    uint64_t ticket = 0;
    std::lock_guard lock(device_->submission());
    if (!device_->EnqueueIdle(s, &ticket)) return false;
    EXPECT_TRUE(s->timeline()->Reached(ticket));
    s->timeline()->Complete(ticket);
    return true;
  };
  EXPECT_TRUE(take(stream.get()));
  const auto gate = SubmitGate(stream.get());
  const uint64_t issued = stream->timeline()->issued();
  EXPECT_FALSE(take(stream.get()));
  EXPECT_EQ(stream->timeline()->issued(), issued) << "it was refused but took a ticket";
  EXPECT_FALSE(take(null())) << "a blocking stream is at work";
  Open(gate);
  Finish();
  const auto null_gate = SubmitGate(null());
  EXPECT_FALSE(take(stream.get())) << "the NULL stream is at work";
  const auto free = NewStream(false);
  EXPECT_TRUE(take(free.get()));
  WaitFor(device_, free.get(), RecordMark(device_, null()));
  EXPECT_FALSE(take(free.get())) << "waits for a mark";
  Open(null_gate);
  Finish();
}

// ---- events are marks ----

TEST_F(StreamTest, LaterWorkWaitsForAMark) {
  const auto a = NewStream(false), b = NewStream(false);
  const auto gate = SubmitGate(a.get());
  Event event;
  EXPECT_TRUE(event.mark().Reached()) << "an event that was never recorded is reached";
  event.Record(RecordMark(device_, a.get()), device_);
  EXPECT_EQ(event.device(), device_);
  EXPECT_FALSE(event.mark().Reached());
  const auto before = SubmitProbe(b.get());
  WaitFor(device_, b.get(), event.mark());
  const auto after = SubmitProbe(b.get());
  EXPECT_TRUE(Runs(before));
  EXPECT_TRUE(HeldBack(after));
  Open(gate);
  EXPECT_TRUE(Reaches(event.mark()));
  Finish();
  EXPECT_TRUE(after->done);
}

TEST_F(StreamTest, AMarkCoversEarlierWorkOnly) {
  const auto stream = NewStream(false);
  (void)SubmitProbe(stream.get());
  const Mark mark = RecordMark(device_, stream.get());
  const auto gate = SubmitGate(stream.get());
  EXPECT_TRUE(Reaches(mark)) << "work enqueued after the event is not part of it";
  Open(gate);
  Finish();
}

TEST_F(StreamTest, AWaitForAStreamIncludesWhatItWaitsFor) {
  const auto a = NewStream(false), b = NewStream(false);
  const auto gate = SubmitGate(a.get());
  WaitFor(device_, b.get(), RecordMark(device_, a.get()));
  EXPECT_FALSE(b->timeline()->Idle()) << "a wait alone keeps the stream busy";
  const Mark relayed = RecordMark(device_, b.get());
  EXPECT_FALSE(relayed.Reached());
  Open(gate);
  EXPECT_TRUE(Reaches(relayed));
  Finish();
}

TEST_F(StreamTest, MarkOnTheNullStreamCoversBlockingStreams) {
  const auto stream = NewStream(true);
  const auto gate = SubmitGate(stream.get());
  const Mark mark = RecordMark(device_, null());
  EXPECT_FALSE(mark.Reached());
  Open(gate);
  EXPECT_TRUE(Reaches(mark));
  Finish();
}

TEST_F(StreamTest, MarkOnABlockingStreamCoversTheNullStream) {
  const auto stream = NewStream(true), free = NewStream(false);
  const auto gate = SubmitGate(null());
  const Mark mark = RecordMark(device_, stream.get());
  EXPECT_FALSE(mark.Reached());
  EXPECT_TRUE(RecordMark(device_, free.get()).Reached());
  Open(gate);
  EXPECT_TRUE(Reaches(mark));
  Finish();
}

TEST_F(StreamTest, AMarkTheNullStreamWaitsForHoldsBackBlockingStreams) {
  const auto free = NewStream(false), stream = NewStream(true);
  const auto gate = SubmitGate(free.get());
  WaitFor(device_, null(), RecordMark(device_, free.get()));
  const auto probe = SubmitProbe(stream.get());
  EXPECT_TRUE(HeldBack(probe));
  Open(gate);
  Finish();
  EXPECT_TRUE(probe->done);
}

// ---- copies, errors, devices ----

TEST_F(StreamTest, CopiesAllBytes) {
  for (const size_t bytes : {size_t{0}, size_t{1}, (size_t{1} << 20) - 1, (size_t{5} << 20) + 3}) {
    std::vector<unsigned char> from(bytes), to(bytes + 1, 0xee);
    std::iota(from.begin(), from.end(), static_cast<unsigned char>(7));
    Submit(device_, null(), MakeCopy(to.data(), from.data(), bytes));
    Finish();
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to.back(), 0xee);
  }
}

TEST_F(StreamTest, AStreamReportsAFailureOnce) {
  const auto stream = NewStream(true);
  Submit(device_, stream.get(), std::make_shared<TestWork>([] { return Poll::kDone; }, Status(Code::kTimeout, "late")));
  const auto probe = SubmitProbe(stream.get());
  EXPECT_TRUE(Runs(probe)) << "work behind a failure still runs";
  EXPECT_EQ(stream->timeline()->TakeError().code(), Code::kTimeout);
  EXPECT_TRUE(stream->timeline()->TakeError().ok());
}

// Several threads use one stream and the NULL stream: every ticket is taken once, all work is done, and the legacy
// order causes no deadlock.
TEST_F(StreamTest, ManyThreadsEnqueueOnSharedStreams) {
  constexpr int kThreads = 4, kEach = 500;
  const auto shared = NewStream(true);
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Stream* stream = (t + i) % 3 == 0 ? null() : shared.get();
        Submit(device_, stream, std::make_shared<TestWork>([&done] { return ++done, Poll::kDone; }));
        if (i % 7 == 0) WaitFor(device_, null(), RecordMark(device_, shared.get()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Finish();
  EXPECT_EQ(done, kThreads * kEach);
}

}  // namespace
}  // namespace axccl::device::host
