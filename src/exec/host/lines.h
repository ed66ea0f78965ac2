// The calls of a launch: those on one channel run one after the other, those on different channels concurrently.
//
// Only the first of each line is polled, so a launch of n calls costs n times as much as one, on one channel or on
// many. A call becomes an operation when its turn comes, so that a launch that waits needs little memory for each of
// its calls.
//
// Call: copyable or moveable, with channel() and Begin(), which makes its operation, or returns why it cannot; must not
// throw. Op: with Progress(), Arm(doorbell), awaited() and status().
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/queue.h"

namespace axccl::exec {

template <class Op, class Call>
class Lines {
 public:
  void Reserve(size_t calls) { calls_.reserve(calls); }
  // Must precede the first Progress().
  void Add(Call call) {
    const auto number = static_cast<uint32_t>(calls_.size());
    Line* const line = LineOf(call.channel());
    calls_.push_back({std::move(call), kNone});
    (line->calls == 0 ? line->next : calls_[line->last].next) = number;
    line->last = number;
    ++line->calls;
  }

  device::host::Poll Progress() {
    bool advanced = false;
    for (size_t i = 0; i < lines_.size();) {
      advanced |= ProgressLine(&lines_[i]);
      if (lines_[i].calls == 0) {
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
    for (Line& line : lines_) line.first->Arm(doorbell);
  }
  // What the operation waits for, if it is the only one that can run.
  device::host::Awaited awaited() const {
    return lines_.size() == 1 ? lines_[0].first->awaited() : device::host::Awaited();
  }
  // Calls visit(first, count) for every line that is left, after the first Progress().
  template <class Visit>
  void ForEach(const Visit& visit) {
    for (Line& line : lines_) visit(*line.first, line.calls);
  }
  // The first error of the operations that have ended.
  const Status& result() const { return result_; }

 private:
  using Key = const void*;
  static constexpr uint32_t kNone = ~0u;
  struct Listed {
    Call call;
    uint32_t next;  // on its channel
  };
  struct Line {
    Key channel = nullptr;
    std::unique_ptr<Op> first;            // under way; null: not begun
    uint32_t next = kNone, last = kNone;  // calls that have not begun
    uint32_t calls = 0;                   // that are left, with the first
  };

  Line* LineOf(Key channel) {
    constexpr size_t kFew = 8;
    if (lines_.size() <= kFew) {
      for (Line& line : lines_) {
        if (line.channel == channel) return &line;
      }
      return NewLine(channel);
    }
    if (line_of_.empty()) {
      for (size_t i = 0; i < lines_.size(); ++i) line_of_[lines_[i].channel] = i;
    }
    const auto [found, is_new] = line_of_.try_emplace(channel, lines_.size());
    return is_new ? NewLine(channel) : &lines_[found->second];
  }
  Line* NewLine(Key channel) {
    lines_.emplace_back().channel = channel;
    return &lines_.back();
  }

  bool ProgressLine(Line* line) {
    bool advanced = false;
    while (line->calls != 0) {
      if (line->first == nullptr && !Begin(line)) {
        advanced = true;
        continue;
      }
      const device::host::Poll poll = line->first->Progress();
      advanced |= poll != device::host::Poll::kBlocked;
      if (poll != device::host::Poll::kDone) break;
      End(line, line->first->status());
    }
    return advanced;
  }
  bool Begin(Line* line) {
    const Listed& listed = calls_[line->next];
    line->next = listed.next;
    Result<std::unique_ptr<Op>> begun = listed.call.Begin();
    if (begun.ok()) {
      line->first = std::move(begun).value();
    } else {
      End(line, begun.status());
    }
    return begun.ok();
  }
  void End(Line* line, const Status& status) {
    if (result_.ok()) result_ = status;
    line->first = nullptr;
    --line->calls;
  }

  std::vector<Listed> calls_;
  std::vector<Line> lines_;
  std::unordered_map<Key, size_t> line_of_;  // used if there are many
  Status result_;
};

}  // namespace axccl::exec
