// CUDA's rules of streams, events and the legacy NULL stream, one by one, over the public API.
//
// CUDA's guarantees (CUDA Runtime API, "Stream synchronization behavior", cudaStreamWaitEvent, cudaEventRecord,
// cudaEventQuery):
//   - Work of a stream runs in order; streams are independent, but for what follows.
//   - Legacy default stream: "when an action is taken in the legacy stream such as a kernel launch or
//     cudaStreamWaitEvent(), the legacy stream first waits on all blocking streams, the action is queued in the legacy
//     stream, and then all blocking streams wait on the legacy stream." Non-blocking streams take no part. The
//     per-thread default stream is a blocking stream.
//   - An event captures "the contents of the stream at the time of the call"; a later record "does not affect" waits
//     that were enqueued before. A wait is an action of the stream: "makes all future work submitted to stream wait".
//   - An event that was never recorded is complete, and waiting for it "is a functional no-op".
//   - Destroying an event or a stream does not take back what was enqueued.
//
// A gate that only the test opens holds up the work, so "has not run" does not depend on time: Settle() lets everything
// run that may, and work that runs too early records it, because it finds the gate closed.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/case_runner.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunRanks;

enum Kind { kNull, kBlocking, kNonBlocking };
const char* const kKindNames[] = {"NULL", "blocking", "non-blocking"};

// A stream of any kind.
class AnyStream {
 public:
  explicit AnyStream(Kind kind) {
    if (kind != kNull) made_.emplace_back(kind == kBlocking ? axcclStreamDefault : axcclStreamNonBlocking);
  }
  operator axcclStream_t() const { return made_.empty() ? nullptr : axcclStream_t(made_.front()); }

 private:
  std::list<Stream> made_;
};

// A host function that records whether it ran before the gate was open.
class Probe {
 public:
  explicit Probe(const Gate* gate) : gate_(gate) {}
  void EnqueueOn(axcclStream_t stream) { ASSERT_OK(axcclLaunchHostFunc(stream, Run, this)); }
  bool ran() const { return state_.load() != kWaits; }
  bool early() const { return state_.load() == kEarly; }

 private:
  enum State { kWaits, kEarly, kInTime };
  static void Run(void* self) {
    Probe* probe = static_cast<Probe*>(self);
    probe->state_.store(probe->gate_->is_open() ? kInTime : kEarly);
  }
  const Gate* const gate_;
  std::atomic<State> state_{kWaits};
};

// Returns when everything that may run has been started.
void Settle() {
  Stream apart;
  ASSERT_OK(axcclLaunchHostFunc(
      apart, [](void*) {}, nullptr));
  ASSERT_OK(axcclStreamSynchronize(apart));
}

void Block(axcclStream_t stream, Gate* gate) { ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, gate)); }

void Alone(void (*body)()) {
  RunRanks(Processes(1), [body](RankContext&) { body(); });
}

// Checks that `wait` does not return before the gate is open. Opens it.
template <class Wait>
void ExpectWaitsForTheGate(Gate* gate, Wait wait) {
  bool open_after = false;
  std::thread waiter([&] {
    wait();
    open_after = gate->is_open();
  });
  Settle();
  gate->Open();
  waiter.join();
  EXPECT_TRUE(open_after) << "returned while work that it waits for was still running";
}

// ---- relays ----

TEST(StreamRules, AnEventRelayedOverThreeStreamsWaitsForTheFirst) {
  Alone([] {
    for (int i = 0; i < 27; ++i) {
      const Kind kinds[] = {Kind(i / 9), Kind(i / 3 % 3), Kind(i % 3)};
      SCOPED_TRACE(std::string(kKindNames[kinds[0]]) + ", " + kKindNames[kinds[1]] + ", " + kKindNames[kinds[2]]);
      AnyStream a(kinds[0]), b(kinds[1]), c(kinds[2]);
      Event first, second;
      Gate gate;
      Probe probe(&gate);
      Block(a, &gate);
      ASSERT_OK(axcclEventRecord(first, a));
      ASSERT_OK(axcclStreamWaitEvent(b, first));
      ASSERT_OK(axcclEventRecord(second, b));
      ASSERT_OK(axcclStreamWaitEvent(c, second));
      probe.EnqueueOn(c);
      Settle();
      EXPECT_EQ(axcclEventQuery(first), ncclInProgress);
      EXPECT_EQ(axcclEventQuery(second), ncclInProgress);
      EXPECT_EQ(axcclStreamQuery(b), ncclInProgress);
      EXPECT_EQ(axcclStreamQuery(c), ncclInProgress);
      EXPECT_FALSE(probe.ran());
      gate.Open();
      ASSERT_OK(axcclStreamSynchronize(c));
      EXPECT_TRUE(probe.ran() && !probe.early());
      ASSERT_OK(axcclHostDeviceSynchronize());
    }
  });
}

TEST(StreamRules, AWaitAloneMakesItsStreamWait) {
  Alone([] {
    for (int i = 0; i < 27; ++i) {
      const Kind kinds[] = {Kind(i / 9), Kind(i / 3 % 3)};
      const int how = i % 3;
      SCOPED_TRACE(std::string(kKindNames[kinds[0]]) + ", " + kKindNames[kinds[1]] + ", way " + std::to_string(how));
      AnyStream a(kinds[0]), b(kinds[1]);
      Event first, second;
      Gate gate;
      Block(a, &gate);
      ASSERT_OK(axcclEventRecord(first, a));
      ASSERT_OK(axcclStreamWaitEvent(b, first));  // and no work after it
      ASSERT_OK(axcclEventRecord(second, b));
      EXPECT_EQ(axcclStreamQuery(b), ncclInProgress);
      ExpectWaitsForTheGate(&gate, [&] {
        EXPECT_OK(how == 0   ? axcclStreamSynchronize(b)
                  : how == 1 ? axcclEventSynchronize(second)
                             : axcclHostDeviceSynchronize());
      });
      EXPECT_EQ(axcclEventQuery(second), ncclSuccess);
      EXPECT_EQ(axcclStreamQuery(b), ncclSuccess);
    }
  });
}

// ---- the legacy NULL stream ----

// Actions of the NULL stream that may be enqueued between work on `a` and work on `b`.
void ActOnNullStream(int action, const Event& complete, Event* recorded) {
  static char from, to;
  switch (action) {
    case 0:
      ASSERT_OK(axcclLaunchHostFunc(
          nullptr, [](void*) {}, nullptr));
      break;
    case 1:
      ASSERT_OK(axcclMemcpyAsync(&to, &from, 1, nullptr));
      break;
    case 2:
      ASSERT_OK(axcclEventRecord(*recorded, nullptr));
      break;
    case 3:
      ASSERT_OK(axcclStreamWaitEvent(nullptr, complete));
      break;
    case 4:
      ASSERT_OK(axcclMemcpyAsync(&to, &from, 1, reinterpret_cast<axcclStream_t>(1)));
      break;  // cudaStreamLegacy
  }
}

TEST(NullStreamRules, AnyActionOnItOrdersTheBlockingStreams) {
  Alone([] {
    for (int action = 0; action < 5; ++action) {
      for (const Kind before : {kBlocking, kNonBlocking}) {
        for (const Kind after : {kBlocking, kNonBlocking}) {
          SCOPED_TRACE(std::string("action ") + std::to_string(action) + ": " + kKindNames[before] + ", " +
                       kKindNames[after]);
          AnyStream a(before), b(after);
          Event complete, recorded;
          ASSERT_OK(axcclEventRecord(complete, b));
          Gate gate;
          Probe probe(&gate);
          Block(a, &gate);
          ActOnNullStream(action, complete, &recorded);
          probe.EnqueueOn(b);
          const bool ordered = before == kBlocking && after == kBlocking;
          if (ordered) {
            Settle();
            EXPECT_FALSE(probe.ran());
            EXPECT_EQ(axcclStreamQuery(b), ncclInProgress);
          } else {
            ASSERT_OK(axcclStreamSynchronize(b));
            EXPECT_TRUE(probe.ran());
          }
          EXPECT_EQ(axcclStreamQuery(nullptr), before == kBlocking ? ncclInProgress : ncclSuccess);
          gate.Open();
          ASSERT_OK(axcclHostDeviceSynchronize());
          EXPECT_EQ(probe.early(), !ordered);
        }
      }
    }
  });
}

TEST(NullStreamRules, StreamsAreOtherwiseIndependent) {
  Alone([] {
    for (const Kind first : {kNull, kBlocking, kNonBlocking}) {
      for (const Kind second : {kNull, kBlocking, kNonBlocking}) {
        SCOPED_TRACE(std::string(kKindNames[first]) + ", then " + kKindNames[second]);
        AnyStream a(first), b(second);
        const bool ordered = (first == kNull && second != kNonBlocking) || (second == kNull && first != kNonBlocking);
        Gate gate;
        Probe probe(&gate);
        Block(a, &gate);
        probe.EnqueueOn(b);
        if (ordered) {
          Settle();
          EXPECT_FALSE(probe.ran());
        } else {
          ASSERT_OK(axcclStreamSynchronize(b));
        }
        gate.Open();
        ASSERT_OK(axcclHostDeviceSynchronize());
        EXPECT_EQ(probe.early(), !ordered);
      }
    }
  });
}

TEST(NullStreamRules, ItAndItsEventsWaitForTheBlockingStreams) {
  Alone([] {
    for (const Kind kind : {kBlocking, kNonBlocking}) {
      for (int how = 0; how < 2; ++how) {
        AnyStream a(kind);
        Event event;
        Gate gate;
        Block(a, &gate);
        ASSERT_OK(axcclEventRecord(event, nullptr));
        EXPECT_EQ(axcclStreamQuery(nullptr), kind == kBlocking ? ncclInProgress : ncclSuccess);
        EXPECT_EQ(axcclEventQuery(event), kind == kBlocking ? ncclInProgress : ncclSuccess);
        const auto wait = [&] { EXPECT_OK(how == 0 ? axcclStreamSynchronize(nullptr) : axcclEventSynchronize(event)); };
        if (kind == kBlocking) {
          ExpectWaitsForTheGate(&gate, wait);
        } else {
          wait();
          gate.Open();
        }
        ASSERT_OK(axcclHostDeviceSynchronize());
      }
    }
  });
}

// "... and then all blocking streams wait on the legacy stream."
TEST(NullStreamRules, BlockingStreamsWaitForItsWork) {
  Alone([] {
    for (int how = 0; how < 2; ++how) {
      Stream blocking(axcclStreamDefault), apart;
      Event event;
      Gate gate;
      Block(nullptr, &gate);
      ASSERT_OK(axcclEventRecord(event, blocking));
      EXPECT_EQ(axcclStreamQuery(blocking), ncclInProgress);
      EXPECT_EQ(axcclStreamQuery(apart), ncclSuccess);
      EXPECT_EQ(axcclEventQuery(event), ncclInProgress);
      ExpectWaitsForTheGate(
          &gate, [&] { EXPECT_OK(how == 0 ? axcclStreamSynchronize(blocking) : axcclEventSynchronize(event)); });
    }
  });
}

TEST(NullStreamRules, WaitingForItDelaysNothing) {
  Alone([] {
    Stream a(axcclStreamDefault), b(axcclStreamDefault);
    Gate gate;
    Block(a, &gate);
    std::thread waiter([] { EXPECT_OK(axcclStreamSynchronize(nullptr)); });
    Settle();
    // Synchronising is no action on the stream: if it delayed b, this would hang.
    ASSERT_OK(axcclLaunchHostFunc(b, OpenGate, &gate));
    waiter.join();
  });
}

TEST(NullStreamRules, ThePerThreadStreamIsABlockingStream) {
  Alone([] {
    const auto per_thread = reinterpret_cast<axcclStream_t>(2);  // cudaStreamPerThread
    Gate gate;
    Probe probe(&gate);
    ASSERT_OK(axcclStreamSynchronize(per_thread));  // gives the thread its device
    Block(nullptr, &gate);
    probe.EnqueueOn(per_thread);
    EXPECT_EQ(axcclStreamQuery(per_thread), ncclInProgress);
    Settle();
    EXPECT_FALSE(probe.ran());
    gate.Open();
    ASSERT_OK(axcclStreamSynchronize(per_thread));
    EXPECT_TRUE(probe.ran() && !probe.early());
  });
}

TEST(NullStreamRules, DevicesHaveOneEach) {
  Alone([] {
    ASSERT_OK(axcclHostSetDevice(1));
    Gate gate;
    Block(nullptr, &gate);
    ASSERT_OK(axcclHostSetDevice(2));
    Stream blocking(axcclStreamDefault);
    bool ran = false;
    ASSERT_OK(axcclLaunchHostFunc(
        nullptr, [](void* r) { *static_cast<bool*>(r) = true; }, &ran));
    ASSERT_OK(axcclStreamSynchronize(blocking));
    ASSERT_OK(axcclStreamSynchronize(nullptr));
    EXPECT_TRUE(ran);
    gate.Open();
    ASSERT_OK(axcclHostSetDevice(1));
    ASSERT_OK(axcclStreamSynchronize(nullptr));
  });
}

// ---- events ----

TEST(EventRules, AWaitIsForTheRecordThatWasThere) {
  Alone([] {
    Stream a, b, c;
    Event event;
    Gate first, second;
    Probe behind_first(&first);
    Block(a, &first);
    Block(c, &second);
    ASSERT_OK(axcclEventRecord(event, a));
    ASSERT_OK(axcclStreamWaitEvent(b, event));
    behind_first.EnqueueOn(b);
    ASSERT_OK(axcclEventRecord(event, c));  // the wait is still for a's work
    Settle();
    EXPECT_FALSE(behind_first.ran());
    first.Open();
    ASSERT_OK(axcclStreamSynchronize(b));
    EXPECT_TRUE(behind_first.ran() && !behind_first.early());
    EXPECT_EQ(axcclEventQuery(event), ncclInProgress) << "the event now records c";
    second.Open();
    ASSERT_OK(axcclEventSynchronize(event));
    EXPECT_EQ(axcclStreamQuery(c), ncclSuccess);
  });
}

TEST(EventRules, OnlyTheLastRecordCounts) {
  Alone([] {
    Stream busy, idle, other;
    Event event;
    Gate gate;
    Block(busy, &gate);
    ASSERT_OK(axcclEventRecord(event, busy));
    ASSERT_OK(axcclEventRecord(event, idle));
    EXPECT_EQ(axcclEventQuery(event), ncclSuccess);
    ASSERT_OK(axcclEventSynchronize(event));
    ASSERT_OK(axcclStreamWaitEvent(other, event));
    ASSERT_OK(axcclStreamSynchronize(other));
    gate.Open();
    ASSERT_OK(axcclStreamSynchronize(busy));
  });
}

TEST(EventRules, WorkAfterTheRecordIsNotPartOfIt) {
  Alone([] {
    Stream a, b;
    Event event;
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(
        a, [](void*) {}, nullptr));
    ASSERT_OK(axcclEventRecord(event, a));
    Block(a, &gate);
    ASSERT_OK(axcclEventSynchronize(event));
    ASSERT_OK(axcclStreamWaitEvent(b, event));
    ASSERT_OK(axcclStreamSynchronize(b));
    gate.Open();
    ASSERT_OK(axcclStreamSynchronize(a));
  });
}

TEST(EventRules, OneNeverRecordedIsComplete) {
  Alone([] {
    Stream blocking(axcclStreamDefault), other(axcclStreamDefault);
    Event never;
    Gate gate;
    EXPECT_EQ(axcclEventQuery(never), ncclSuccess);
    ASSERT_OK(axcclEventSynchronize(never));
    Block(blocking, &gate);
    ASSERT_OK(axcclStreamWaitEvent(nullptr, never));  // "a functional no-op": no action on the NULL stream either
    bool ran = false;
    ASSERT_OK(axcclLaunchHostFunc(
        other, [](void* r) { *static_cast<bool*>(r) = true; }, &ran));
    ASSERT_OK(axcclStreamSynchronize(other));
    EXPECT_TRUE(ran);
    gate.Open();
    ASSERT_OK(axcclStreamSynchronize(blocking));
  });
}

TEST(EventRules, OrderStreamsOfDifferentDevices) {
  Alone([] {
    for (int i = 0; i < 9; ++i) {
      const Kind kinds[] = {Kind(i / 3), Kind(i % 3)};
      SCOPED_TRACE(std::string(kKindNames[kinds[0]]) + ", then " + kKindNames[kinds[1]]);
      Event event;
      Gate gate;
      Probe probe(&gate);
      ASSERT_OK(axcclHostSetDevice(3));
      AnyStream a(kinds[0]);
      Block(a, &gate);
      ASSERT_OK(axcclEventRecord(event, a));
      ASSERT_OK(axcclHostSetDevice(4));
      AnyStream b(kinds[1]);
      ASSERT_OK(axcclStreamWaitEvent(b, event));
      EXPECT_EQ(axcclStreamQuery(b), ncclInProgress);
      probe.EnqueueOn(b);
      Settle();
      EXPECT_FALSE(probe.ran());
      gate.Open();
      ASSERT_OK(axcclStreamSynchronize(b));
      EXPECT_TRUE(probe.ran() && !probe.early());
      ASSERT_OK(axcclHostSetDevice(3));
      ASSERT_OK(axcclHostDeviceSynchronize());
    }
  });
}

// No thread waits in the library: work that a host function releases on another device still runs.
TEST(EventRules, WhatAnotherDeviceReleasesRunsByItself) {
  Alone([] {
    ASSERT_OK(axcclHostSetDevice(5));
    Stream a;
    ASSERT_OK(axcclHostSetDevice(6));
    Stream b;
    Event event;
    Gate gate, done;
    for (int round = 0; round < 3; ++round) {
      Block(a, &gate);
      ASSERT_OK(axcclEventRecord(event, a));
      ASSERT_OK(axcclStreamWaitEvent(b, event));
      ASSERT_OK(axcclLaunchHostFunc(b, OpenGate, &done));
      gate.Open();
      done.Wait();
    }
    ASSERT_OK(axcclStreamSynchronize(a));
    ASSERT_OK(axcclStreamSynchronize(b));
  });
}

TEST(EventRules, DestroyingThemTakesNothingBack) {
  Alone([] {
    Stream b;
    axcclStream_t a = nullptr;
    axcclEvent_t event = nullptr;
    Event kept;
    Gate gate;
    Probe probe(&gate);
    ASSERT_OK(axcclStreamCreate(&a, axcclStreamNonBlocking));
    ASSERT_OK(axcclEventCreate(&event));
    Block(a, &gate);
    ASSERT_OK(axcclEventRecord(event, a));
    ASSERT_OK(axcclEventRecord(kept, a));
    ASSERT_OK(axcclStreamWaitEvent(b, event));
    ASSERT_OK(axcclEventDestroy(event));
    ASSERT_OK(axcclStreamDestroy(a));
    probe.EnqueueOn(b);
    Settle();
    EXPECT_EQ(axcclEventQuery(kept), ncclInProgress);
    EXPECT_FALSE(probe.ran());
    gate.Open();
    ASSERT_OK(axcclEventSynchronize(kept));
    ASSERT_OK(axcclStreamSynchronize(b));
    EXPECT_TRUE(probe.ran() && !probe.early());
  });
}

// ---- with collectives ----

// A host function on one stream writes the input, and a copy on another stream reads the result. The collective between
// them is on a third stream, of each kind in turn; only events order the three.
TEST(EventRules, OrderCollectivesBehindTheirInputAndBeforeWhatReadsThem) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    for (const Kind kind : {kNull, kBlocking, kNonBlocking}) {
      for (const size_t count : {size_t{1}, size_t{100000}}) {
        SCOPED_TRACE(std::string(kKindNames[kind]) + ", count " + std::to_string(count));
        AnyStream collective(kind);
        Stream input, output;
        Event ready, done;
        struct State {
          Gate gate;
          std::vector<int> data, copy;
        } state;
        state.data.assign(count, -1);
        state.copy.assign(count, -1);
        ASSERT_OK(axcclLaunchHostFunc(
            input,
            [](void* s) {
              State* state = static_cast<State*>(s);
              state->gate.Wait();
              std::fill(state->data.begin(), state->data.end(), 21);
            },
            &state));
        ASSERT_OK(axcclEventRecord(ready, input));
        ASSERT_OK(axcclStreamWaitEvent(collective, ready));
        ASSERT_OK(ncclAllReduce(state.data.data(), state.data.data(), count, ncclInt32, ncclSum, clique.comm(),
                                Cuda(collective)));
        ASSERT_OK(axcclEventRecord(done, collective));
        ASSERT_OK(axcclStreamWaitEvent(output, done));
        ASSERT_OK(axcclMemcpyAsync(state.copy.data(), state.data.data(), count * sizeof(int), output));
        EXPECT_EQ(axcclEventQuery(done), ncclInProgress);
        EXPECT_EQ(axcclStreamQuery(output), ncclInProgress);
        ASSERT_TRUE(context.Barrier());
        state.gate.Open();
        ASSERT_OK(axcclStreamSynchronize(output));
        EXPECT_EQ(state.copy, std::vector<int>(count, 42));
      }
    }
  });
}

// "If calls of a group use several streams, all of them are joined": in any order, on any streams.
TEST(NullStreamRules, GroupsMayUseItBesideOtherStreamsInAnyOrder) {
  for (const int ranks : {1, 2}) {
    RunCliques(Processes(ranks), [](RankContext& context, Clique& clique) {
      Stream blocking(axcclStreamDefault), other(axcclStreamDefault), apart;
      const axcclStream_t streams[] = {nullptr, blocking, other, apart};
      int order[] = {0, 1, 2, 3};
      int round = 0;
      do {
        ASSERT_TRUE(context.Step("round %d", ++round));
        float in[4], out[4] = {};
        ASSERT_OK(ncclGroupStart());
        for (int i = 0; i < 4; ++i) {
          in[i] = static_cast<float>(round + i);
          ASSERT_OK(ncclAllReduce(&in[i], &out[i], 1, ncclFloat, ncclSum, clique.comm(), Cuda(streams[order[i]])));
        }
        ASSERT_OK(ncclGroupEnd());
        ASSERT_OK(axcclStreamSynchronize(streams[order[round % 4]]));
        for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], in[i] * static_cast<float>(context.nranks()));
      } while (std::next_permutation(order, order + 4));
    });
  }
}

// The two ranks enqueue the calls of two communicators in opposite orders, one on the NULL stream, one on a blocking
// stream.
TEST(NullStreamRules, CallsOfAGroupDoNotWaitForEachOther) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique first, second;
    ASSERT_TRUE(first.Init(context));
    ASSERT_TRUE(second.Init(context));
    Stream blocking(axcclStreamDefault);
    const bool turned = context.rank() == 1;
    Clique& mine = turned ? second : first;
    Clique& other = turned ? first : second;
    for (int round = 0; round < 20; ++round) {
      int a = 1, b = 2;
      ASSERT_OK(ncclGroupStart());
      int& on_null = turned ? b : a;
      int& on_blocking = turned ? a : b;
      ASSERT_OK(ncclAllReduce(&on_null, &on_null, 1, ncclInt32, ncclSum, mine.comm(), nullptr));
      ASSERT_OK(ncclAllReduce(&on_blocking, &on_blocking, 1, ncclInt32, ncclSum, other.comm(), Cuda(blocking)));
      ASSERT_OK(ncclGroupEnd());
      ASSERT_OK(axcclStreamSynchronize(nullptr));
      EXPECT_EQ(a, 2);
      EXPECT_EQ(b, 4);
    }
  });
}

}  // namespace
}  // namespace axccl::tests
