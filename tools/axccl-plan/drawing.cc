#include "tools/axccl-plan/drawing.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "src/base/format.h"
#include "src/base/svg.h"
#include "src/plan/text.h"

namespace axccl::tools {
namespace {

using plan::Op;
using plan::OpKind;
using plan::Schedule;

constexpr size_t kMostRows = 64, kMostColumns = 200, kMostTitle = 200, kMostLinks = 4;
constexpr double kLeft = 110, kTop = 52, kColumn = 66, kBox = 54, kRow = 40, kBoxHeight = 18, kRight = 20;  // pixels

struct Look {
  OpKind kind;
  const char* style;
  const char* label;
};
constexpr Look kLooks[] = {{OpKind::kCopy, "copy", "copy"},       {OpKind::kReduce, "reduce", "reduce"},
                           {OpKind::kSignal, "signal", "signal"}, {OpKind::kWait, "wait", "wait"},
                           {OpKind::kNop, "nop", "nop"},          {OpKind::kAwait, "await", "await"},
                           {OpKind::kNotify, "notify", "notify"}};

constexpr char kStyle[] =
    "text{fill:#1d2433}.lane{fill:#f4f4f4}.copy{fill:#a9cbe8}.reduce{fill:#f4b6a6}.signal{fill:#f2d98b}"
    ".wait{fill:#cfe3b4}.nop{fill:#dddddd}.await{fill:#d9c7ea}.notify{fill:#f3c6dd}.never{stroke:#c1121f;stroke-width:"
    "2}"
    ".arrow{stroke:#7a6520;marker-end:url(#head)}.data{stroke:#4e79a7;stroke-dasharray:2 3}";
constexpr char kHead[] =
    "<defs><marker id=\"head\" markerWidth=\"6\" markerHeight=\"6\" refX=\"5\" refY=\"3\" orient=\"auto\">"
    "<path d=\"M0 0L6 3L0 6Z\" fill=\"#7a6520\"/></marker></defs>\n";

const Look& LookOf(OpKind kind) {
  return *std::find_if(std::begin(kLooks), std::end(kLooks), [kind](const Look& look) { return look.kind == kind; });
}

std::string LabelOf(const Op& op) {
  std::string label = LookOf(op.kind).label;
  if (op.kind == OpKind::kSignal && op.peer == plan::kAllPeers) return label + " all";
  if (op.kind == OpKind::kSignal || op.kind == OpKind::kWait) return label + " " + std::to_string(op.peer);
  if (op.kind == OpKind::kAwait || op.kind == OpKind::kNotify) return label + " " + std::to_string(op.chunk);
  return label;
}

struct Spot {
  size_t row = 0, column = 0;
};

// An operation at its place.
struct Placed {
  size_t column = 0;
  bool never = false;       // it cannot run
  bool has_signal = false;  // it waits for one that is sent
  Spot signal;
};

// Runs the schedule once, without data: the column of each operation.
class Columns {
 public:
  explicit Columns(const Schedule& schedule) : schedule_(schedule), lanes_(schedule.lanes) {
    const size_t rows = schedule.program.size() * lanes_;
    placed_.resize(rows);
    std::vector<size_t> runnable(rows);
    for (size_t row = 0; row < rows; ++row) runnable[rows - 1 - row] = row;
    while (!runnable.empty()) {
      const size_t row = runnable.back();
      runnable.pop_back();
      Run(row, &runnable);
    }
    for (size_t row = 0; row < rows; ++row) {
      while (placed_[row].size() < OpsOf(row).size()) Add(row, Placed{Next(row), true, false, {}});
    }
  }

  const std::vector<Op>& OpsOf(size_t row) const { return schedule_.program[row / lanes_][row % lanes_].ops; }
  const std::vector<Placed>& Of(size_t row) const { return placed_[row]; }
  size_t rows() const { return placed_.size(); }
  size_t columns() const { return columns_; }

 private:
  using Endpoint = std::tuple<size_t, size_t, size_t>;  // rank, lane, index

  size_t Next(size_t row) const { return placed_[row].empty() ? 0 : placed_[row].back().column + 1; }
  void Add(size_t row, const Placed& placed) {
    placed_[row].push_back(placed);
    columns_ = std::max(columns_, placed.column + 1);
  }

  void Run(size_t row, std::vector<size_t>* runnable) {
    const std::vector<Op>& ops = OpsOf(row);
    while (placed_[row].size() < ops.size()) {
      const Op& op = ops[placed_[row].size()];
      Placed placed{Next(row), false, false, {}};
      if (op.kind == OpKind::kWait) {
        const Endpoint from{static_cast<size_t>(op.peer), op.from_lane, op.endpoint};
        const std::vector<Spot>& sent = signals_[from];
        if (op.value < 1 || sent.size() < op.value) {
          waiting_[from].push_back(row);
          return;
        }
        placed.has_signal = true;
        placed.signal = sent[op.value - 1u];
        placed.column = std::max(placed.column, placed.signal.column + 1);
      }
      Add(row, placed);
      if (op.kind != OpKind::kSignal) continue;
      const Endpoint own{row / lanes_, row % lanes_, op.endpoint};
      signals_[own].push_back({row, placed.column});
      std::vector<size_t>& woken = waiting_[own];
      runnable->insert(runnable->end(), woken.begin(), woken.end());
      woken.clear();
    }
  }

  const Schedule& schedule_;
  const size_t lanes_;
  std::vector<std::vector<Placed>> placed_;  // [row][operation]
  size_t columns_ = 0;
  std::map<Endpoint, std::vector<Spot>> signals_;
  std::map<Endpoint, std::vector<size_t>> waiting_;  // rows
};

class Drawing {
 public:
  explicit Drawing(const Schedule& schedule)
      : schedule_(schedule), columns_(schedule), drawn_(std::min(columns_.rows(), kMostRows)) {}

  std::string Draw() {
    const size_t wide = std::min(columns_.columns(), kMostColumns);
    const double width = std::max(kLeft + kColumn * static_cast<double>(wide) + kRight, 640.0);
    const double height = kTop + kRow * static_cast<double>(drawn_) + 24;
    DrawLegend();
    for (size_t row = 0; row < drawn_; ++row) {
      const double y = RowY(row);
      svg_.Words(4, y + 13, Format("rank %zu lane %zu", row / schedule_.lanes, row % schedule_.lanes));
      svg_.Rect("lane", kLeft - 4, y - 2, width - kLeft - kRight + 8, kBoxHeight + 4);
    }
    size_t left_out = 0;
    for (size_t row = 0; row < columns_.rows(); ++row) left_out += DrawRow(row);
    if (left_out > 0 || drawn_ < columns_.rows())
      svg_.Words(4, height - 8, Format("and %zu lanes and %zu operations more", columns_.rows() - drawn_, left_out));
    return BeginSvg(width, height, kStyle, " font-family=\"sans-serif\" font-size=\"10\"") + kHead + svg_.text() +
           SvgWriter::kEnd;
  }

 private:
  static double RowY(size_t row) { return kTop + kRow * static_cast<double>(row); }
  static double ColumnX(size_t column) { return kLeft + kColumn * static_cast<double>(column); }

  void DrawLegend() {
    svg_.Words(4, 16,
               Format("%s, %s, %d ranks", schedule_.algorithm.c_str(), plan::KindName(schedule_.contract.kind),
                      schedule_.contract.ranks));
    double x = 4;
    for (const Look& look : kLooks) {
      svg_.Raw(Format("<path class=\"%s\" d=\"M%.0f 26h10v10h-10Z\"/>\n", look.style, x));
      svg_.Words(x + 14, 35, look.label);
      x += 62;
    }
    svg_.Words(x, 35, "dotted: whose buffers are read or written");
  }

  // Returns how many operations are left out.
  size_t DrawRow(size_t row) {
    const std::vector<Op>& ops = columns_.OpsOf(row);
    const std::vector<Placed>& placed = columns_.Of(row);
    if (row >= drawn_) return ops.size();
    size_t done = 0;
    for (; done < ops.size() && placed[done].column < kMostColumns; ++done) DrawOperation(row, ops[done], placed[done]);
    return ops.size() - done;
  }

  void DrawOperation(size_t row, const Op& op, const Placed& placed) {
    const double x = ColumnX(placed.column), y = RowY(row);
    const size_t rank = row / schedule_.lanes, lane = row % schedule_.lanes;
    std::string title = plan::Print(op, static_cast<int>(rank), static_cast<int>(lane));
    if (title.size() > kMostTitle) title = title.substr(0, kMostTitle) + "...";
    if (placed.never) title += "; it cannot run";
    svg_.Rect(std::string(LookOf(op.kind).style) + (placed.never ? " never" : ""), x, y, kBox, kBoxHeight, title,
              " rx=\"2\"");
    svg_.Words(x + kBox / 2, y + 13, LabelOf(op), "middle");
    if (placed.has_signal && placed.signal.row < drawn_)
      svg_.Line("arrow", ColumnX(placed.signal.column) + kBox, RowY(placed.signal.row) + kBoxHeight / 2, x,
                y + kBoxHeight / 2);
    DrawLinks(rank, lane, op, x + kBox / 2, y);
  }

  void DrawLinks(size_t rank, size_t lane, const Op& op, double x, double y) {
    std::set<size_t> others;
    for (const auto* operands : {&op.dst, &op.src}) {
      for (const plan::Operand& operand : *operands) {
        plan::ForEachRank(operand, schedule_.contract.ranks, [&](const plan::Operand& each) {
          if (each.rank != rank && others.size() < kMostLinks) others.insert(each.rank);
        });
      }
    }
    for (const size_t other : others) {
      const size_t row = other * schedule_.lanes + lane;
      if (row < drawn_) svg_.Line("data", x, row < rank * schedule_.lanes + lane ? y : y + kBoxHeight, x, RowY(row));
    }
  }

  const Schedule& schedule_;
  const Columns columns_;
  const size_t drawn_;  // rows
  SvgWriter svg_;
};

}  // namespace

std::string DrawingOf(const plan::Schedule& schedule) { return Drawing(schedule).Draw(); }

}  // namespace axccl::tools
