#include <algorithm>
#include <optional>

#include "src/program/transform.h"
#include "src/program/transform/stages.h"

namespace axccl::program {
namespace {

// How far a stage has come.
struct Progress {
  int forward = 0, backward = 0;  // passes done
  bool last_was_forward = false;
};

class Scheduler {
 public:
  Scheduler(int stages, int microbatches, PipelineOrder order, bool independent)
      : microbatches_(microbatches), order_(order), independent_(independent), done_(static_cast<size_t>(stages)) {}

  std::vector<std::vector<Pass>> Run() {
    std::vector<std::vector<Pass>> steps;
    const auto is_done = [&](const Progress& stage) { return stage.backward == microbatches_; };
    while (!std::all_of(done_.begin(), done_.end(), is_done)) {
      const std::vector<Progress> before = done_;
      steps.emplace_back();
      for (size_t stage = 0; stage < done_.size(); ++stage) steps.back().push_back(Take(stage, before));
    }
    return steps;
  }

 private:
  // Of the stage, from what all had done before the step.
  Pass Take(size_t stage, const std::vector<Progress>& before) {
    Progress& own = done_[stage];
    const int arrived = stage == 0 ? microbatches_ : before[stage - 1].forward;
    const int returned = independent_ || stage + 1 == done_.size() ? own.forward : before[stage + 1].backward;
    const bool can_forward = own.forward < arrived, can_backward = own.backward < returned;
    const bool is_forward = can_forward && (order_ == PipelineOrder::kFifo || !own.last_was_forward || !can_backward);
    if (is_forward) {
      own.last_was_forward = true;
      return {own.forward++, true};
    }
    if (!can_backward || (order_ == PipelineOrder::kFifo && own.forward < microbatches_)) return {};
    own.last_was_forward = false;
    return {own.backward++, false};
  }

  const int microbatches_;
  const PipelineOrder order_;
  const bool independent_;
  std::vector<Progress> done_;  // [stage]
};

}  // namespace

std::vector<std::vector<Pass>> ScheduleOf(int stages, int microbatches, PipelineOrder order, bool independent) {
  return Scheduler(stages, microbatches, order, independent).Run();
}

}  // namespace axccl::program
