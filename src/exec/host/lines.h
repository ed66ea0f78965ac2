// The operations of a launch: those on one channel run one after the other, those on different channels concurrently.
//
// Only the first of each line is polled, so a launch of n operations costs n times as much as one, on one channel or on
// many. Op: moveable, with channel(), Progress(), Arm(doorbell), awaited() and status().
#pragma once

#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/queue.h"

namespace axccl::exec {

template <class Op>
class Lines {
 public:
  // Must precede the first Progress().
  void Add(Op op) { LineOf(op.channel())->push_back(std::move(op)); }

  device::host::Poll Progress() {
    bool advanced = false;
    for (size_t i = 0; i < lines_.size();) {
      advanced |= ProgressLine(&lines_[i]);
      if (lines_[i].empty()) {
        std::swap(lines_[i], lines_.back());
        lines_.pop_back();
      } else {
        ++i;
      }
    }
    using device::host::Poll;
    return lines_.empty() ? Poll::kDone : advanced ? Poll::kAgain : Poll::kBlocked;
  }
  void Arm(int doorbell) {
    for (Line& line : lines_) line.front().Arm(doorbell);
  }
  // What the operation waits for, if it is the only one that can run.
  device::host::Awaited awaited() const {
    return lines_.size() == 1 ? lines_[0].front().awaited() : device::host::Awaited();
  }
  // Calls visit(first, count) for every line that is left.
  template <class Visit>
  void ForEach(const Visit& visit) {
    for (Line& line : lines_) visit(line.front(), line.size());
  }
  // The first error of the operations that have ended.
  const Status& result() const { return result_; }

 private:
  using Line = std::deque<Op>;
  using Key = const void*;

  // The line of a channel; a new one is empty until its operation is added.
  Line* LineOf(Key channel) {
    constexpr size_t kFew = 8;
    if (lines_.size() <= kFew) {
      for (Line& line : lines_) {
        if (line.front().channel() == channel) return &line;
      }
      return &lines_.emplace_back();
    }
    if (line_of_.empty()) {
      for (size_t i = 0; i < lines_.size(); ++i) line_of_[lines_[i].front().channel()] = i;
    }
    const auto [found, is_new] = line_of_.try_emplace(channel, lines_.size());
    if (is_new) lines_.emplace_back();
    return &lines_[found->second];
  }

  bool ProgressLine(Line* line) {
    bool advanced = false;
    while (!line->empty()) {
      const device::host::Poll poll = line->front().Progress();
      advanced |= poll != device::host::Poll::kBlocked;
      if (poll != device::host::Poll::kDone) break;
      if (result_.ok()) result_ = line->front().status();
      line->pop_front();
    }
    return advanced;
  }

  std::vector<Line> lines_;
  std::unordered_map<Key, size_t> line_of_;  // used if there are many
  Status result_;
};

}  // namespace axccl::exec
