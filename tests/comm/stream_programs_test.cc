// Random programs of streams, events, waits and host functions, checked against CUDA's rules (stream_rules_test.cc).
//
// An oracle keeps, for every stream and event, the host functions that must run before it is complete. One function of
// each program waits at a gate, which is closed at first. Functions that the rules order after the gate must not run,
// or be complete, before it opens; all others must end while it is closed (otherwise the program hangs until the run's
// deadline). So the test finds order that is missing and order that is added. Then the gate opens, and every function
// must have run after all those before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/comm/streams.h"
#include "tests/harness/random.h"

namespace axccl::tests {
namespace {

using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;

using Functions = std::set<int>;

enum Kind { kNull, kBlocking, kNonBlocking };

// A host function of the program.
struct Function {
  std::atomic<int>* clock;
  Gate* gate = nullptr;  // of the function that waits
  std::atomic<int> begun{0}, ended{0};
  Functions before;

  static void Run(void* argument) {
    Function* self = static_cast<Function*>(argument);
    self->begun = ++*self->clock;
    if (self->gate != nullptr) self->gate->Wait();
    self->ended = ++*self->clock;
  }
};

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {
    for (const Kind kind : {kNull, kBlocking, kBlocking, kNonBlocking, kNonBlocking}) {
      kinds_.push_back(kind);
      made_.push_back(kind == kNull
                          ? nullptr
                          : std::make_unique<Stream>(kind == kBlocking ? axcclStreamDefault : axcclStreamNonBlocking));
    }
    work_.resize(kinds_.size());
    recorded_.resize(events_.size());
  }

  void Run() {
    const int steps = 5 + static_cast<int>(random_.Below(30));
    const int gate_at = static_cast<int>(random_.Below(static_cast<uint64_t>(steps)) / 2);
    for (int i = 0; i < steps; ++i) {
      const size_t stream = random_.Below(kinds_.size());
      const size_t event = random_.Below(events_.size());
      if (i == gate_at) {
        Launch(stream, true);
        continue;
      }
      switch (random_.Below(4)) {
        case 0:
          Launch(stream, false);
          break;
        case 1:
          Record(event, stream);
          break;
        case 2:
          Wait(stream, event);
          break;
        case 3:
          Copy(stream);
          break;
      }
    }
    CheckWhileClosed();
    gate_.Open();
    ASSERT_OK(axcclHostDeviceSynchronize());
    CheckOrder();
  }

 private:
  axcclStream_t At(size_t stream) const { return made_[stream] == nullptr ? nullptr : axcclStream_t(*made_[stream]); }

  // The functions that a stream waits for: its own work and, by the legacy rule, that of other streams.
  Functions WaitsFor(size_t stream) const {
    Functions all = work_[stream];
    for (size_t s = 0; s < kinds_.size(); ++s) {
      if (kinds_[stream] == kNull && kinds_[s] == kBlocking) all.insert(work_[s].begin(), work_[s].end());
      if (kinds_[stream] == kBlocking && kinds_[s] == kNull) all.insert(work_[s].begin(), work_[s].end());
    }
    return all;
  }
  // An action on the stream comes after all functions that the stream waits for.
  void Act(size_t stream) { work_[stream] = WaitsFor(stream); }

  void Launch(size_t stream, bool gate) {
    Act(stream);
    const int number = static_cast<int>(functions_.size());
    Function& function = functions_.emplace_back();
    function.clock = &clock_;
    function.before = work_[stream];
    if (gate) {
      function.gate = &gate_;
      gate_number_ = number;
    }
    work_[stream].insert(number);
    ASSERT_OK(axcclLaunchHostFunc(At(stream), Function::Run, &function));
  }
  void Record(size_t event, size_t stream) {
    Act(stream);
    recorded_[event] = work_[stream];
    ASSERT_OK(axcclEventRecord(events_[event], At(stream)));
    ever_[event] = true;
  }
  void Wait(size_t stream, size_t event) {
    if (ever_[event]) {
      Act(stream);
      work_[stream].insert(recorded_[event].begin(), recorded_[event].end());
    }
    ASSERT_OK(axcclStreamWaitEvent(At(stream), events_[event]));
  }
  void Copy(size_t stream) {
    Act(stream);
    ASSERT_OK(axcclMemcpyAsync(&to_, &from_, sizeof(int), At(stream)));
  }

  bool BehindTheGate(const Functions& work) const { return work.count(gate_number_) != 0; }

  void CheckWhileClosed() {
    for (size_t s = 0; s < kinds_.size(); ++s) {
      if (BehindTheGate(WaitsFor(s))) {
        EXPECT_EQ(axcclStreamQuery(At(s)), ncclInProgress) << "stream " << s;
      } else {
        EXPECT_OK(axcclStreamSynchronize(At(s)));
        EXPECT_EQ(axcclStreamQuery(At(s)), ncclSuccess) << "stream " << s;
      }
    }
    for (size_t e = 0; e < events_.size(); ++e) {
      if (BehindTheGate(recorded_[e])) {
        EXPECT_EQ(axcclEventQuery(events_[e]), ncclInProgress) << "event " << e;
      } else {
        EXPECT_OK(axcclEventSynchronize(events_[e]));
      }
    }
    int number = 0;
    for (const Function& function : functions_) {
      if (BehindTheGate(function.before)) {
        EXPECT_EQ(function.begun, 0) << "function " << number;
      } else if (number != gate_number_) {
        while (function.ended == 0) std::this_thread::yield();  // the run's deadline is the limit
      }
      ++number;
    }
  }

  void CheckOrder() {
    std::vector<const Function*> all;
    for (const Function& function : functions_) all.push_back(&function);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_NE(all[i]->ended, 0);
      for (const int before : all[i]->before)
        EXPECT_LT(all[static_cast<size_t>(before)]->ended, all[i]->begun) << before << " before " << i;
    }
  }

  Random random_;
  std::vector<Kind> kinds_;
  std::vector<std::unique_ptr<Stream>> made_;
  std::vector<Event> events_{3};
  bool ever_[3] = {};
  std::vector<Functions> work_, recorded_;
  std::list<Function> functions_;
  std::atomic<int> clock_{0};
  Gate gate_;
  int gate_number_ = -1, from_ = 0, to_ = 0;
};

TEST(StreamPrograms, DoWhatTheRulesSay) {
  RunRanks(Processes(1), [](RankContext& context) {
    const int programs = harness::FullTests() ? 20000 : 1000;
    for (int i = 0; i < programs; ++i) {
      ASSERT_TRUE(context.Step("program %d of seed %llu", i, static_cast<unsigned long long>(harness::Seed())));
      Program(harness::Scramble(harness::Seed(), static_cast<uint64_t>(i))).Run();
      if (testing::Test::HasFailure()) return;
    }
  });
}

}  // namespace
}  // namespace axccl::tests
