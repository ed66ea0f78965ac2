#include "perf/overlap/trace.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "axccl/device.h"
#include "perf/common/fail.h"
#include "perf/common/json_file.h"

namespace axccl::perf::overlap {
namespace {

constexpr int kMatmulLine = 1, kCommunicationLine = 2;
constexpr size_t kNumbersOfEvent = 5;
constexpr std::chrono::microseconds kWatchPeriod(50);

void WriteName(JsonWriter* json, const char* what, size_t rank, int line, const std::string& name) {
  json->BeginObject();
  json->Key("name").String(what);
  json->Key("ph").String("M");
  json->Key("pid").Int(static_cast<int64_t>(rank));
  json->Key("tid").Int(line);
  json->Key("args").BeginObject();
  json->Key("name").String(name);
  json->EndObject();
  json->EndObject();
}

std::string NameOf(Happened what, int64_t number) {
  const std::string of = number < 0 ? "" : " " + std::to_string(number);
  switch (what) {
    case Happened::kMatmul:
      return "matmul" + of;
    case Happened::kCollective:
      return "collective" + of;
    case Happened::kCalled:
      return "called" + of;
    case Happened::kReady:
      return "ready" + of;
    case Happened::kSeen:
      return "seen" + of;
  }
  return "";
}

}  // namespace

double Trace::Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::vector<Trace::Event>> Trace::OfAll(Exchange* exchange) const {
  // All have to give equally many numbers.
  const auto most = static_cast<size_t>(exchange->Combine(static_cast<double>(events_.size()), Average::kMax));
  std::vector<double> mine;
  for (const Event& e : events_) mine.insert(mine.end(), {e.mode, e.what, e.number, e.begin, e.end});
  mine.resize(most * kNumbersOfEvent, -1);
  std::vector<std::vector<Event>> all;
  for (const std::vector<double>& row : exchange->AllGatherRows(mine)) {
    std::vector<Event>& events = all.emplace_back();
    for (size_t i = 0; i < row.size() && row[i] >= 0; i += kNumbersOfEvent)
      events.push_back({row[i], row[i + 1], row[i + 2], row[i + 3], row[i + 4]});
    std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.begin < b.begin; });
  }
  return all;
}

void Trace::Write(const std::string& path, Exchange* exchange, const std::vector<std::string>& mode_names) const {
  const std::vector<std::vector<Event>> all = OfAll(exchange);
  if (exchange->self() != 0) return;
  FILE* const opened = std::fopen(path.c_str(), "w");
  if (opened == nullptr) Fail(kExitUsage, "option --trace: cannot create %s: %s", path.c_str(), std::strerror(errno));
  double first = 1e300;
  for (const std::vector<Event>& events : all) {
    if (!events.empty()) first = std::min(first, events[0].begin);
  }
  JsonFile file(opened, path);
  JsonWriter& json = *file.json();
  json.BeginObject();
  json.Key("traceEvents").BeginList();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    WriteName(&json, "process_name", rank, 0, "rank " + std::to_string(rank));
    WriteName(&json, "thread_name", rank, kMatmulLine, "matmuls");
    WriteName(&json, "thread_name", rank, kCommunicationLine, "communication");
    for (const Event& event : all[rank]) {
      const auto what = static_cast<Happened>(event.what);
      const bool span = what == Happened::kMatmul || what == Happened::kCollective;
      json.BeginObject();
      json.Key("name").String(NameOf(what, static_cast<int64_t>(event.number)));
      json.Key("cat").String(mode_names[static_cast<size_t>(event.mode)]);
      json.Key("ph").String(span ? "X" : "i");
      json.Key("pid").Int(static_cast<int64_t>(rank));
      json.Key("tid").Int(what == Happened::kMatmul ? kMatmulLine : kCommunicationLine);
      json.Key("ts").Double((event.begin - first) * 1e6);
      if (span) json.Key("dur").Double((event.end - event.begin) * 1e6);
      if (!span) json.Key("s").String("t");
      json.EndObject();
    }
  }
  json.CloseTo(0);
}

Watcher::Watcher(Trace* trace, const uint32_t* words, int64_t count)
    : trace_(trace), words_(words), seen_(static_cast<size_t>(count)), thread_([this] { Watch(); }) {}

Watcher::~Watcher() {
  stop_.store(true);
  thread_.join();
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i] != 0) trace_->Add(Happened::kSeen, static_cast<int64_t>(i), seen_[i], seen_[i]);
  }
}

void Watcher::Watch() {
  for (bool last = false; !last;) {
    last = stop_.load();  // looks once more after that
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (seen_[i] == 0 && axcclDeviceLook(words_ + i) == 1) seen_[i] = Trace::Now();
    }
    if (!last) std::this_thread::sleep_for(kWatchPeriod);
  }
}

}  // namespace axccl::perf::overlap
