// Adds up when the two streams of a rank are busy, and for how long at the same time. Intervals of a stream come in
// ascending order and do not overlap; those of the streams come in any order. Keeps only intervals of the stream that
// is ahead. A value.
#pragma once

#include <algorithm>
#include <deque>

namespace axccl::program {

class BusyStreams {
 public:
  void Add(int stream, double begin, double end) {
    if (end <= begin) return;
    seconds_[stream] += end - begin;
    std::deque<Interval>& own = open_[stream];
    if (!own.empty() && own.back().end == begin) {
      own.back().end = end;
    } else {
      own.push_back({begin, end});
    }
    Match();
  }
  double seconds(int stream) const { return seconds_[stream]; }
  double both() const { return both_; }

 private:
  struct Interval {
    double begin, end;
  };

  // What ends first can only overlap what is there already.
  void Match() {
    while (!open_[0].empty() && !open_[1].empty()) {
      Interval &a = open_[0].front(), &b = open_[1].front();
      const double begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
      both_ += std::max(0.0, end - begin);
      a.begin = b.begin = std::max(begin, end);
      if (a.end <= end) open_[0].pop_front();
      if (b.end <= end) open_[1].pop_front();
    }
  }

  double seconds_[2] = {0, 0};
  double both_ = 0;
  std::deque<Interval> open_[2];
};

}  // namespace axccl::program
