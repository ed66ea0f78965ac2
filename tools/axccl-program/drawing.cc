#include "tools/axccl-program/drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <vector>

#include "src/base/format.h"
#include "src/base/hash.h"
#include "src/base/svg.h"
#include "src/program/check/rules.h"
#include "src/program/facts.h"
#include "src/program/kinds.h"

namespace axccl::tools {

using program::Ints;
using program::Operation;
using program::OpKind;
using program::SimulatedEvent;

namespace {

// In pixels.
constexpr double kLeft = 170, kPlot = 1000, kRight = 30, kNarrow = 0.5, kWide = 4;
constexpr double kLane = 12, kRow = 34, kTop = 52, kAxis = 34, kCurve = 44, kCurveRow = 62;
constexpr size_t kMostRows = 64, kMostLabel = 26;

struct Colour {
  const char* name;
  const char* value;
};
constexpr Colour kColours[] = {{"dot", "#4e79a7"},        {"arithmetic", "#76b7b2"},     {"moves", "#bab0ac"},
                               {"all_reduce", "#e15759"}, {"all_gather", "#f28e2b"},     {"reduce_scatter", "#edc948"},
                               {"messages", "#59a14f"},   {"other transfers", "#b07aa1"}};
constexpr size_t kNumColours = std::size(kColours);

size_t ColourOf(OpKind kind) {
  switch (kind) {
    case OpKind::kDot:
    case OpKind::kDotGeneral:
      return 0;
    case OpKind::kAllReduce:
      return 3;
    case OpKind::kAllGather:
      return 4;
    case OpKind::kReduceScatter:
      return 5;
    case OpKind::kSend:
    case OpKind::kRecv:
      return 6;
    default:
      if (program::IsCommunication(kind)) return 7;
      return program::IsElementwise(kind) || kind == OpKind::kReduce || kind == OpKind::kScatter ? 1 : 2;
  }
}

std::string OperationText(const Operation& operation) {
  return "%" + std::to_string(operation.id) + " " + std::string(program::InfoOf(operation.kind).name);
}

struct Unit {
  const char* name;
  double size;
};
// The largest of which the value has at least one.
Unit UnitOf(double value, std::initializer_list<Unit> descending) {
  for (const Unit& unit : descending) {
    if (value >= unit.size) return unit;
  }
  return *std::prev(descending.end());
}
Unit UnitOfTime(double seconds) { return UnitOf(seconds, {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}); }
std::string TimeText(double seconds) {
  const Unit unit = UnitOfTime(seconds);
  return Format("%.4g %s", seconds / unit.size, unit.name);
}
std::string BytesText(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  const Unit unit = UnitOf(value, {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"bytes", 1}});
  return Format("%.4g %s", value / unit.size, unit.name);
}

// "ranks 0-3, 8"; what is too long ends in "...".
std::string RanksText(const Ints& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0, next = 0; first < ranks.size(); first = next) {
    for (next = first + 1; next < ranks.size() && ranks[next] == ranks[next - 1] + 1;) ++next;
    std::string some = (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (next > first + 1) some += "-" + std::to_string(ranks[next - 1]);
    if (text.size() + some.size() > kMostLabel) return text + ", ...";
    text += some;
  }
  return text;
}

using DrawnEvents = std::vector<const SimulatedEvent*>;

struct DrawnRow {
  Ints ranks;
  const program::Part* part;  // null: none
  const DrawnEvents* events;  // of each of the ranks
};

bool AreAlike(const DrawnEvents& a, const DrawnEvents& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const SimulatedEvent* x, const SimulatedEvent* y) {
    return x->operation == y->operation && x->communication == y->communication && x->begin == y->begin &&
           x->end == y->end;
  });
}

uint64_t HashOfEvents(const DrawnEvents& events) {
  uint64_t hash = kHashSeed;
  for (const SimulatedEvent* event : events) {
    hash = Mix(hash, event->operation->id);
    hash = Mix(hash, std::hash<double>()(event->begin));
  }
  return hash;
}

// In the order of their first ranks.
std::vector<DrawnRow> RowsOf(const program::Program& program, const std::vector<DrawnEvents>& of_ranks) {
  std::vector<const program::Part*> parts(of_ranks.size());
  for (const program::Part& part : program.parts) {
    for (const int64_t rank : part.ranks) parts[static_cast<size_t>(rank)] = &part;
  }
  std::vector<DrawnRow> rows;
  std::multimap<uint64_t, size_t> known;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const uint64_t hash = HashOfEvents(of_ranks[rank]);
    auto [like, end] = known.equal_range(hash);
    while (like != end &&
           (rows[like->second].part != parts[rank] || !AreAlike(*rows[like->second].events, of_ranks[rank])))
      ++like;
    if (like == end) {
      known.emplace(hash, rows.size());
      rows.push_back({{static_cast<int64_t>(rank)}, parts[rank], &of_ranks[rank]});
    } else {
      rows[like->second].ranks.push_back(static_cast<int64_t>(rank));
    }
  }
  return rows;
}

class Drawing {
 public:
  Drawing(const program::Program& program, const program::Simulation& simulation)
      : program_(program), simulation_(simulation), of_ranks_(simulation.ranks.size()) {
    for (const SimulatedEvent& event : simulation.events) of_ranks_[static_cast<size_t>(event.rank)].push_back(&event);
    for (const program::PartMemory& memory : simulation.parts) scale_ = std::max(scale_, memory.peak);
  }

  std::string Draw() {
    const std::vector<DrawnRow> rows = RowsOf(program_, of_ranks_);
    const size_t drawn = std::min(rows.size(), kMostRows), curves = std::min(program_.parts.size(), kMostRows);
    const double axis = kTop + kRow * static_cast<double>(drawn) + 16;
    const double height = axis + kAxis + kCurveRow * static_cast<double>(curves) + 24;
    DrawLegend(height);
    DrawAxis(axis, height - 24);
    for (size_t i = 0; i < drawn; ++i) DrawRow(rows[i], kTop + kRow * static_cast<double>(i));
    if (drawn < rows.size()) svg_.Words(kLeft, axis - 4, Format("and %zu rows more", rows.size() - drawn));
    for (size_t i = 0; i < curves; ++i) DrawMemory(i, axis + kAxis + kCurveRow * static_cast<double>(i));
    if (curves < program_.parts.size())
      svg_.Words(kLeft, height - 8, Format("and %zu parts more", program_.parts.size() - curves));
    return svg_.text() + SvgWriter::kEnd;
  }

 private:
  // Operations of a stream that follow each other.
  struct Block {
    const SimulatedEvent *first = nullptr, *last = nullptr;
    size_t operations = 0;
    double begin = 0, end = 0, busy = 0;  // seconds
    std::array<double, kNumColours> of_colour{};

    void Add(const SimulatedEvent& event) {
      if (operations++ == 0) first = &event, begin = event.begin;
      last = &event;
      end = event.end;
      busy += event.end - event.begin;
      of_colour[ColourOf(event.operation->kind)] += event.end - event.begin;
    }
  };

  double Pixels(double seconds) const { return simulation_.seconds > 0 ? kPlot * seconds / simulation_.seconds : 0; }

  void DrawLegend(double height) {
    const double width = kLeft + kPlot + kRight;
    std::string style;
    for (size_t i = 0; i < kNumColours; ++i) style += Format(".c%zu{fill:%s}", i, kColours[i].value);
    style +=
        ".wide{stroke:white;stroke-width:0.5}.lane{fill:#f2f2f2}.grid{stroke:#d8d8d8}.live{fill:#9c755f;fill-opacity:0."
        "35;stroke:#9c755f}";
    svg_.Raw(BeginSvg(width, height, style, " font-family=\"sans-serif\" font-size=\"11\""));
    svg_.Raw(Format("<rect width=\"%.0f\" height=\"%.0f\" fill=\"white\"/>\n", width, height));
    svg_.Words(kLeft, 16, "time " + TimeText(simulation_.seconds) + "; of each rank, computation above communication");
    for (size_t i = 0; i < kNumColours; ++i) {
      const double x = kLeft + 122 * static_cast<double>(i);
      svg_.Rect(Format("c%zu", i), x, 26, 10, 10);
      svg_.Words(x + 14, 35, kColours[i].name);
    }
  }

  // A line at 1, 2 or 5 times a power of ten, at most ten of them.
  void DrawAxis(double y, double bottom) {
    const double total = simulation_.seconds;
    double step = total > 0 ? std::pow(10, std::floor(std::log10(total / 10))) : 1;
    for (const double more : {2.0, 2.5, 2.0}) {
      if (total / step > 10) step *= more;
    }
    const Unit unit = UnitOfTime(total);
    for (int i = 0; i * step <= total * (1 + 1e-9); ++i) {
      const double x = kLeft + Pixels(i * step);
      svg_.Line("grid", x, kTop - 6, x, bottom);
      svg_.Words(x, y + 12, Format("%.6g %s", i * step / unit.size, unit.name), "middle");
    }
  }

  void DrawRow(const DrawnRow& row, double y) {
    svg_.Words(4, y + 10, RanksText(row.ranks));
    if (row.part != nullptr) svg_.Words(4, y + 23, row.part->function.name.substr(0, kMostLabel));
    for (const bool communication : {false, true}) {
      const double lane = y + (communication ? kLane + 1 : 0);
      svg_.Rect("lane", kLeft, lane, kPlot, kLane);
      DrawLane(*row.events, communication, lane);
    }
  }

  void DrawLane(const DrawnEvents& events, bool communication, double y) {
    Block block;
    for (const SimulatedEvent* event : events) {
      if (event->communication != communication) continue;
      const bool joins = Pixels(event->end - event->begin) < kNarrow && Pixels(block.end - block.begin) < kNarrow &&
                         Pixels(event->begin - block.end) < kNarrow;
      if (block.operations > 0 && !joins) {
        DrawBlock(block, y);
        block = Block();
      }
      block.Add(*event);
    }
    if (block.operations > 0) DrawBlock(block, y);
  }

  void DrawBlock(const Block& block, double y) {
    const auto most = std::max_element(block.of_colour.begin(), block.of_colour.end());
    const double length = block.end - block.begin, share = length > 0 ? block.busy / length : 1;
    std::string what = OperationText(*block.first->operation);
    if (block.operations > 1)
      what = Format("%zu operations, ", block.operations) + what + " to " + OperationText(*block.last->operation);
    svg_.Rect(Format("c%td%s", most - block.of_colour.begin(), Pixels(length) >= kWide ? " wide" : ""),
              kLeft + Pixels(block.begin), y, Pixels(length), kLane,
              what + ": " + TimeText(length) + " from " + TimeText(block.begin),
              share < 0.995 ? Format(" fill-opacity=\"%.2f\"", share) : "");
  }

  // Of a part, by the events of its first rank.
  void DrawMemory(size_t index, double y) {
    const program::Part& part = program_.parts[index];
    const program::PartMemory& memory = simulation_.parts[index];
    const std::string at = memory.at == nullptr ? "of arguments" : "at " + OperationText(*memory.at);
    svg_.Words(4, y + 18, part.function.name.substr(0, kMostLabel));
    svg_.Words(4, y + 31, "live bytes");
    svg_.Words(kLeft, y + 10,
               "peak " + BytesText(memory.peak) + " " + at + ", drawn for rank " + std::to_string(part.ranks[0]));
    const double base = y + 14 + kCurve;
    const auto height = [&](uint64_t bytes) {
      return base - (scale_ > 0 ? kCurve * static_cast<double>(bytes) / static_cast<double>(scale_) : 0);
    };
    std::string path = Format("M%.2f %.2fV%.2f", kLeft, base, height(memory.arguments));
    double now = 0, column = -1;
    uint64_t least = memory.arguments, most = least, last = least;
    const auto close = [&] {
      if (least != most) path += Format("V%.2fV%.2f", height(least), height(most));
      path += Format("V%.2f", height(last));
    };
    for (const SimulatedEvent* event : of_ranks_[static_cast<size_t>(part.ranks[0])]) {
      now = std::max(now, event->begin);
      if (const double x = std::floor(Pixels(now) / kNarrow); x != column) {
        close();
        path += Format("H%.2f", kLeft + Pixels(now));
        column = x;
        least = most = event->live_bytes;
      }
      last = event->live_bytes;
      least = std::min(least, last);
      most = std::max(most, last);
    }
    close();
    svg_.Raw("<path class=\"live\" d=\"" + path + Format("H%.2fV%.2fZ\"/>\n", kLeft + kPlot, base));
  }

  const program::Program& program_;
  const program::Simulation& simulation_;
  std::vector<DrawnEvents> of_ranks_;
  uint64_t scale_ = 0;  // bytes that are kCurve high
  SvgWriter svg_;
};

}  // namespace

std::string DrawingOf(const program::Program& program, const program::Simulation& simulation) {
  return Drawing(program, simulation).Draw();
}

}  // namespace axccl::tools
