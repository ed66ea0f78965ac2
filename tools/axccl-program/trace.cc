#include "tools/axccl-program/trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/format.h"
#include "src/program/kinds.h"

namespace axccl::tools {

using program::SimulatedEvent;

namespace {

constexpr int kComputeLine = 1, kCommunicationLine = 2;

class TraceText {
 public:
  explicit TraceText(const std::vector<SimulatedEvent>& events) : events_(events), outlasts_(events.size()) {
    std::map<std::pair<int, bool>, double> next;
    for (size_t i = events.size(); i-- > 0;) {
      const SimulatedEvent& e = events[i];
      const auto [later, is_last] = next.emplace(std::pair(e.rank, e.communication), e.begin);
      outlasts_[i] = !is_last && e.end > later->second;
      later->second = e.begin;
    }
  }

  std::string Write() {
    for (size_t i = 0; i < events_.size(); ++i) AddEvent(events_[i], outlasts_[i]);
    return text_ + "\n]}\n";
  }

 private:
  void Add(const std::string& event) {
    text_ += separator_ + event;
    separator_ = ",\n";
  }
  void Name(int rank, const char* what, int line, const std::string& name) {
    Add(Format("{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}", what, rank, line,
               name.c_str()));
  }

  int LineOf(const SimulatedEvent& e, bool outlasts) {
    if (!outlasts) return e.communication ? kCommunicationLine : kComputeLine;
    std::vector<double>& free = beside_[e.rank];
    size_t i = 0;
    while (i < free.size() && free[i] > e.begin) ++i;
    const int line = kCommunicationLine + 1 + static_cast<int>(i);
    if (i == free.size()) {
      free.push_back(0);
      Name(e.rank, "thread_name", line, "communication beside it");
    }
    free[i] = e.end;
    return line;
  }

  void AddEvent(const SimulatedEvent& e, bool outlasts) {
    const auto [counted, is_first] = counted_.emplace(e.rank, 0);
    if (is_first) {
      Name(e.rank, "process_name", 0, "rank " + std::to_string(e.rank));
      Name(e.rank, "thread_name", kComputeLine, "compute");
      Name(e.rank, "thread_name", kCommunicationLine, "communication");
    }
    const std::string kind(program::InfoOf(e.operation->kind).name);
    const int line = LineOf(e, outlasts);
    Add(
        Format("{\"name\":\"%%%u %s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.9g,\"dur\":%.9g,"
               "\"args\":{\"id\":%u}}",
               e.operation->id, kind.c_str(), e.communication ? "communication" : "compute", e.rank, line,
               e.begin * 1e6, (e.end - e.begin) * 1e6, e.operation->id));
    counted->second = std::max(counted->second, e.begin);
    Add(Format("{\"name\":\"live bytes\",\"ph\":\"C\",\"pid\":%d,\"ts\":%.9g,\"args\":{\"bytes\":%llu}}", e.rank,
               counted->second * 1e6, static_cast<unsigned long long>(e.live_bytes)));
  }

  const std::vector<SimulatedEvent>& events_;
  std::vector<bool> outlasts_;                 // [event]: whether it ends after the begin of its stream's next one
  std::map<int, double> counted_;              // [rank]: when memory was counted last, in the order of the program
  std::map<int, std::vector<double>> beside_;  // [rank]: when its lines for those are free
  std::string text_ = "{\"traceEvents\":[";
  const char* separator_ = "\n";
};

}  // namespace

std::string TraceOf(const std::vector<SimulatedEvent>& events) { return TraceText(events).Write(); }

}  // namespace axccl::tools
