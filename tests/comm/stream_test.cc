// Host streams and events: order, asynchrony, the NULL stream, and callbacks that overlap communication.
//
// Nothing here waits for time to pass: every wait is for an event that must happen, under the run's deadline.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunRanks;
using harness::Threads;

// ---- streams alone ----

TEST(Stream, WorkRunsInOrder) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    struct Log {
      std::vector<int> entries;
      int next = 0;
    } log;
    std::vector<int> from(1000), to(1000);
    std::iota(from.begin(), from.end(), 0);
    for (int i = 0; i < 200; ++i) {
      ASSERT_OK(axcclLaunchHostFunc(
          stream,
          [](void* argument) {
            Log* l = static_cast<Log*>(argument);
            l->entries.push_back(l->next++);
          },
          &log));
      ASSERT_OK(axcclMemcpyAsync(to.data() + i * 5, from.data() + i * 5, 5 * sizeof(int), stream));
    }
    ASSERT_OK(axcclStreamSynchronize(stream));
    ASSERT_EQ(log.entries.size(), 200u);
    for (int i = 0; i < 200; ++i) EXPECT_EQ(log.entries[static_cast<size_t>(i)], i);
    EXPECT_EQ(from, to);
  });
}

TEST(Stream, QueryReturnsWithoutWaiting) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    Event event;
    EXPECT_EQ(axcclEventQuery(event), ncclSuccess);  // never recorded
    EXPECT_EQ(axcclStreamQuery(stream), ncclSuccess);
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    ASSERT_OK(axcclEventRecord(event, stream));
    EXPECT_EQ(axcclStreamQuery(stream), ncclInProgress);
    EXPECT_EQ(axcclEventQuery(event), ncclInProgress);
    gate.Open();
    ASSERT_OK(axcclEventSynchronize(event));
    EXPECT_EQ(axcclEventQuery(event), ncclSuccess);
    ASSERT_OK(axcclStreamSynchronize(stream));
    EXPECT_EQ(axcclStreamQuery(stream), ncclSuccess);
  });
}

TEST(Stream, SynchronizeForGivesUp) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    EXPECT_OK(axcclStreamSynchronizeFor(stream, 0));
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    EXPECT_EQ(axcclStreamSynchronizeFor(stream, 0), ncclInProgress);
    EXPECT_EQ(axcclStreamSynchronizeFor(stream, 0.05), ncclInProgress);
    EXPECT_EQ(axcclStreamSynchronizeFor(nullptr, 0), ncclSuccess);  // NULL is another stream
    EXPECT_EQ(axcclStreamSynchronizeFor(stream, -1), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamSynchronizeFor(stream, std::numeric_limits<double>::quiet_NaN()), ncclInvalidArgument);
    gate.Open();
    EXPECT_OK(axcclStreamSynchronizeFor(stream, std::numeric_limits<double>::infinity()));
    EXPECT_EQ(axcclStreamQuery(stream), ncclSuccess);
  });
}

// Seconds that a clock in nanoseconds cannot count.
TEST(Stream, SynchronizeForWaitsForAnyLength) {
  RunRanks(Processes(1), [](RankContext&) {
    for (const double seconds : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
      for (const bool on_event : {false, true}) {
        Stream stream;
        Event event;
        Gate gate;
        ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
        ASSERT_OK(axcclEventRecord(event, stream));
        std::thread opener([&] {
          EXPECT_EQ(axcclStreamSynchronizeFor(stream, 0.1), ncclInProgress);
          gate.Open();
        });
        EXPECT_OK(on_event ? axcclEventSynchronizeFor(event, seconds) : axcclStreamSynchronizeFor(stream, seconds))
            << seconds;
        opener.join();
      }
    }
  });
}

TEST(Stream, EventSynchronizeForGivesUp) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    Event event;
    EXPECT_OK(axcclEventSynchronizeFor(event, 0));
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    ASSERT_OK(axcclEventRecord(event, stream));
    EXPECT_EQ(axcclEventSynchronizeFor(event, 0), ncclInProgress);
    EXPECT_EQ(axcclEventSynchronizeFor(event, 0.05), ncclInProgress);
    EXPECT_EQ(axcclEventSynchronizeFor(event, -1), ncclInvalidArgument);
    gate.Open();
    EXPECT_OK(axcclEventSynchronizeFor(event, 600));
    EXPECT_OK(axcclEventQuery(event));
  });
}

// An error is returned once, by the call that finds the work done.
TEST(Stream, SynchronizeForReturnsTheErrorWhenTheWorkIsDone) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    ASSERT_OK(axcclLaunchHostFunc(
        stream, [](void*) { throw 1; }, nullptr));
    EXPECT_EQ(axcclStreamSynchronizeFor(stream, 0), ncclInProgress);
    gate.Open();
    const ncclResult_t error = axcclStreamSynchronizeFor(stream, 600);
    EXPECT_TRUE(error != ncclSuccess && error != ncclInProgress) << error;
    EXPECT_OK(axcclStreamSynchronizeFor(stream, 600));
  });
}

TEST(Stream, CallbacksOfDifferentStreamsRunAtTheSameTime) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream a, b;
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(a, WaitAtGate, &gate));
    ASSERT_OK(axcclLaunchHostFunc(b, OpenGate, &gate));
    ASSERT_OK(axcclStreamSynchronize(a));
    ASSERT_OK(axcclStreamSynchronize(b));
  });
}

TEST(Stream, EventsOrderStreams) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream a, b;
    Event event;
    for (int round = 0; round < 50; ++round) {
      struct State {
        Gate gate;
        int value = 0;
        int seen = -1;
      } state;
      ASSERT_OK(axcclLaunchHostFunc(
          a,
          [](void* s) {
            static_cast<State*>(s)->gate.Wait();
            static_cast<State*>(s)->value = 42;
          },
          &state));
      ASSERT_OK(axcclEventRecord(event, a));
      ASSERT_OK(axcclStreamWaitEvent(b, event));
      ASSERT_OK(axcclLaunchHostFunc(
          b, [](void* s) { static_cast<State*>(s)->seen = static_cast<State*>(s)->value; }, &state));
      EXPECT_EQ(axcclStreamQuery(b), ncclInProgress);
      state.gate.Open();
      ASSERT_OK(axcclStreamSynchronize(b));
      EXPECT_EQ(state.seen, 42);
    }
    // Waiting for an event that was never recorded has no effect.
    Event never;
    ASSERT_OK(axcclStreamWaitEvent(b, never));
    ASSERT_OK(axcclStreamSynchronize(b));
  });
}

TEST(Stream, DestroyedStreamsFinishTheirWork) {
  RunRanks(Processes(1), [](RankContext&) {
    Gate gate;
    Gate done;
    axcclStream_t stream = nullptr;
    ASSERT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    ASSERT_OK(axcclLaunchHostFunc(stream, OpenGate, &done));
    ASSERT_OK(axcclStreamDestroy(stream));
    EXPECT_EQ(axcclStreamSynchronize(stream), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamDestroy(stream), ncclInvalidArgument);
    gate.Open();
    done.Wait();
  });
}

// A thread may destroy a stream that another one waits for, as a watchdog does, and streams are made meanwhile. The
// thread that waits gets the stream's error, or finds that the stream is gone.
TEST(Stream, MayBeDestroyedWhileAThreadWaitsForIt) {
  RunRanks(Processes(1), [](RankContext&) {
    ASSERT_OK(axcclHostSetDevice(0));
    std::atomic<bool> ended{false};
    std::thread maker([&] {
      EXPECT_OK(axcclHostSetDevice(0));
      while (!ended) Stream another;
    });
    for (int round = 0; round < 100; ++round) {
      axcclStream_t stream = nullptr;
      EXPECT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
      Gate gate;
      EXPECT_OK(axcclLaunchHostFunc(
          stream,
          [](void* at) {
            static_cast<Gate*>(at)->Wait();
            throw 1;
          },
          &gate));
      Gate waits;
      std::thread destroyer([&] {
        waits.Wait();
        usleep(1000);
        EXPECT_OK(axcclStreamDestroy(stream));
        gate.Open();
      });
      waits.Open();
      const ncclResult_t result = axcclStreamSynchronize(stream);
      EXPECT_TRUE(result == ncclInvalidUsage || result == ncclInvalidArgument) << result;
      destroyer.join();
    }
    ended = true;
    maker.join();
  });
}

// cudaEventDestroy: "does not block on completion of the event".
TEST(Stream, AnEventMayBeDestroyedWhileAThreadWaitsForIt) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    axcclEvent_t event = nullptr;
    ASSERT_OK(axcclEventCreate(&event));
    Gate gate, waits;
    ASSERT_OK(axcclLaunchHostFunc(stream, WaitAtGate, &gate));
    ASSERT_OK(axcclEventRecord(event, stream));
    std::thread waiter([&] {
      waits.Open();
      const ncclResult_t result = axcclEventSynchronize(event);
      EXPECT_TRUE(result == ncclSuccess || result == ncclInvalidArgument) << result;
    });
    waits.Wait();
    usleep(20'000);
    EXPECT_OK(axcclEventDestroy(event));
    gate.Open();  // only now may the wait end
    waiter.join();
  });
}

// Threads that run host functions keep nothing of what these have chosen.
TEST(Stream, HostFunctionsDoNotInheritADevice) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    for (int round = 0; round < 20; ++round) {
      int device = -1;
      ASSERT_OK(axcclLaunchHostFunc(
          stream,
          [](void* found) {
            EXPECT_OK(axcclHostGetDevice(static_cast<int*>(found)));
            EXPECT_OK(axcclHostSetDevice(7));
          },
          &device));
      ASSERT_OK(axcclStreamSynchronize(stream));
      ASSERT_EQ(device, 0) << "round " << round;
      usleep(1000);  // the thread is free again
    }
  });
}

TEST(Stream, DeviceSynchronizeCoversAllItsStreams) {
  RunRanks(Processes(1), [](RankContext&) {
    ASSERT_OK(axcclHostSetDevice(2));
    Stream a, b;
    std::atomic<int> count{0};
    for (const axcclStream_t stream : {axcclStream_t(a), axcclStream_t(b)}) {
      for (int i = 0; i < 20; ++i) {
        ASSERT_OK(axcclLaunchHostFunc(
            stream, [](void* c) { ++*static_cast<std::atomic<int>*>(c); }, &count));
      }
    }
    ASSERT_OK(axcclHostDeviceSynchronize());
    EXPECT_EQ(count.load(), 40);
    int device = -1;
    ASSERT_OK(axcclHostGetDevice(&device));
    EXPECT_EQ(device, 2);
  });
}

TEST(Stream, ManyThreadsMaySynchronizeOneStream) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream stream;
    std::atomic<int> count{0};
    for (int i = 0; i < 500; ++i) {
      ASSERT_OK(axcclLaunchHostFunc(
          stream, [](void* c) { ++*static_cast<std::atomic<int>*>(c); }, &count));
    }
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        if (axcclStreamSynchronize(stream) != ncclSuccess || count.load() != 500) ++wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
  });
}

TEST(Stream, RefusesBadArguments) {
  RunRanks(Processes(1), [](RankContext&) {
    axcclStream_t stream = nullptr;
    EXPECT_EQ(axcclStreamCreate(nullptr, 0), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamCreate(&stream, 0x80), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamDestroy(nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclEventCreate(nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclEventDestroy(nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclEventRecord(nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamWaitEvent(nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclLaunchHostFunc(nullptr, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclHostSetDevice(-1), ncclInvalidArgument);
    EXPECT_EQ(axcclHostSetDevice(1024), ncclInvalidArgument);
    EXPECT_EQ(axcclHostGetDevice(nullptr), ncclInvalidArgument);
    char byte = 0;
    EXPECT_EQ(axcclMemcpyAsync(nullptr, &byte, 1, nullptr), ncclInvalidArgument);
    EXPECT_EQ(axcclMemcpyAsync(&byte, nullptr, 1, nullptr), ncclInvalidArgument);
    const axcclStream_t garbage = reinterpret_cast<axcclStream_t>(0x7777);
    EXPECT_EQ(axcclStreamSynchronize(garbage), ncclInvalidArgument);
    EXPECT_EQ(axcclStreamQuery(garbage), ncclInvalidArgument);
    EXPECT_OK(axcclStreamSynchronize(nullptr));
  });
}

// ---- the NULL stream ----

TEST(NullStream, WaitsForEarlierWorkOfBlockingStreamsAndDelaysLater) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream blocking(axcclStreamDefault);
    struct State {
      Gate gate;
      std::vector<int> order;
    } state;
    const auto note = [](int n) {
      static void (*const notes[])(void*) = {[](void* s) { static_cast<State*>(s)->order.push_back(0); },
                                             [](void* s) { static_cast<State*>(s)->order.push_back(1); },
                                             [](void* s) { static_cast<State*>(s)->order.push_back(2); }};
      return notes[n];
    };
    ASSERT_OK(axcclLaunchHostFunc(
        blocking, [](void* s) { static_cast<State*>(s)->gate.Wait(); }, &state));
    ASSERT_OK(axcclLaunchHostFunc(blocking, note(0), &state));
    ASSERT_OK(axcclLaunchHostFunc(nullptr, note(1), &state));
    ASSERT_OK(axcclLaunchHostFunc(blocking, note(2), &state));
    EXPECT_EQ(axcclStreamQuery(nullptr), ncclInProgress);
    state.gate.Open();
    ASSERT_OK(axcclStreamSynchronize(blocking));
    EXPECT_EQ(state.order, (std::vector<int>{0, 1, 2}));
  });
}

TEST(NullStream, NonBlockingStreamsTakeNoPart) {
  RunRanks(Processes(1), [](RankContext&) {
    Stream free;
    Gate gate;
    ASSERT_OK(axcclLaunchHostFunc(free, WaitAtGate, &gate));
    ASSERT_OK(axcclLaunchHostFunc(nullptr, OpenGate, &gate));  // would never run if it waited for `free`
    ASSERT_OK(axcclStreamSynchronize(free));
    Gate second;
    ASSERT_OK(axcclLaunchHostFunc(nullptr, WaitAtGate, &second));
    ASSERT_OK(axcclLaunchHostFunc(free, OpenGate, &second));
    ASSERT_OK(axcclStreamSynchronize(nullptr));
  });
}

TEST(NullStream, CarriesCollectives) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    std::vector<int> data(1000, context.rank() + 1);
    struct Copy {
      std::vector<int>* from;
      std::vector<int> to;
    } copy{&data, {}};
    ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(), nullptr));
    ASSERT_OK(axcclLaunchHostFunc(
        nullptr, [](void* c) { static_cast<Copy*>(c)->to = *static_cast<Copy*>(c)->from; }, &copy));
    ASSERT_OK(axcclStreamSynchronize(nullptr));
    EXPECT_EQ(copy.to, std::vector<int>(1000, 3));
  });
}

// ---- collectives on streams ----

class CollectiveStreamTest : public testing::TestWithParam<harness::Layout> {};

TEST_P(CollectiveStreamTest, CallReturnsBeforeThePeerHasCalled) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    for (int round = 0; round < 5; ++round) {
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{500000}}) {
        std::vector<int> data(count, 1);
        ASSERT_TRUE(context.Step("round %d count %zu", round, count));
        const int cell = round * 3 + (count == 1 ? 0 : count == 1000 ? 1 : 2);
        if (context.rank() == 0) {
          ASSERT_OK(
              ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
          // The peers are waiting for this, so the operation cannot have finished.
          EXPECT_EQ(axcclStreamQuery(clique.stream()), ncclInProgress);
          context.Set(cell, 1);
        } else {
          ASSERT_EQ(context.Await(cell), 1u);
          ASSERT_OK(
              ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
        }
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(data.front(), context.nranks());
        EXPECT_EQ(data.back(), context.nranks());
        ASSERT_TRUE(context.Barrier());
      }
    }
  });
}

TEST_P(CollectiveStreamTest, TakesPartInStreamOrder) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    struct State {
      std::vector<int> data;
      std::vector<int> copy;
      int value = 0;
    } state;
    state.data.resize(3000);
    for (int round = 1; round <= 20; ++round) {
      state.value = round;
      ASSERT_OK(axcclLaunchHostFunc(
          clique.stream(),
          [](void* s) {
            State* state = static_cast<State*>(s);
            for (int& value : state->data) value = state->value;
          },
          &state));
      ASSERT_OK(ncclAllReduce(state.data.data(), state.data.data(), state.data.size(), ncclInt32, ncclSum,
                              clique.comm(), Cuda(clique.stream())));
      ASSERT_OK(axcclLaunchHostFunc(
          clique.stream(), [](void* s) { static_cast<State*>(s)->copy = static_cast<State*>(s)->data; }, &state));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(state.copy, std::vector<int>(3000, round * context.nranks()));
    }
  });
}

TEST_P(CollectiveStreamTest, OtherStreamsWaitByEvent) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    Event event;
    std::vector<int> data(5000, 1);
    std::vector<int> copy(5000, 0);
    for (int round = 0; round < 10; ++round) {
      std::fill(data.begin(), data.end(), round);
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream(0, 0))));
      ASSERT_OK(axcclEventRecord(event, clique.stream(0, 0)));
      ASSERT_OK(axcclStreamWaitEvent(clique.stream(0, 1), event));
      ASSERT_OK(axcclMemcpyAsync(copy.data(), data.data(), data.size() * sizeof(int), clique.stream(0, 1)));
      ASSERT_OK(axcclStreamSynchronize(clique.stream(0, 1)));
      ASSERT_EQ(copy, std::vector<int>(5000, round * context.nranks()));
    }
  });
}

TEST_P(CollectiveStreamTest, CallbackComputeOverlapsCommunication) {
  // While rank 0 computes in a callback of one stream, its all_reduce on another stream completes on the other ranks:
  // the computation only ends when they report that.
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    for (int round = 0; round < 5; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      std::vector<int> data(200000, 1);
      struct Wait {
        RankContext* context;
        int parties;
      } wait{&context, context.nranks()};
      if (context.rank() == 0) {
        ASSERT_OK(axcclLaunchHostFunc(
            clique.stream(0, 1),
            [](void* w) { static_cast<Wait*>(w)->context->Barrier(3, static_cast<Wait*>(w)->parties); }, &wait));
      }
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream(0, 0))));
      if (context.rank() == 0) {
        ASSERT_OK(axcclStreamSynchronize(clique.stream(0, 1)));  // only the library drives the all_reduce
      } else {
        ASSERT_OK(axcclStreamSynchronize(clique.stream(0, 0)));
        context.Barrier(3, context.nranks());
      }
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(data[199999], context.nranks());
    }
  });
}

TEST_P(CollectiveStreamTest, EventPollingCompletesWithoutSynchronize) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    Event event;
    std::vector<int> data(100000, 1);
    for (int round = 0; round < 5; ++round) {
      std::fill(data.begin(), data.end(), 1);
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream())));
      ASSERT_OK(axcclEventRecord(event, clique.stream()));
      ncclResult_t state = ncclInProgress;
      while ((state = axcclEventQuery(event)) == ncclInProgress && !context.AnyFailed()) std::this_thread::yield();
      ASSERT_OK(state);
      ASSERT_EQ(data[77], context.nranks());
      ASSERT_TRUE(context.Barrier());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, CollectiveStreamTest, testing::Values(Processes(2), Threads(2), Processes(4)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
