#include <algorithm>
#include <array>

#include "src/base/svg.h"
#include "src/topo/draw.h"

namespace axccl::topo {
namespace {

constexpr int kWidth = 1200, kGap = 8, kLine = 16;  // pixels
constexpr int kLetter = 7;                          // width of the monospaced letters, rounded up
constexpr std::array<const char*, 8> kRankColours = {"#8ecae6", "#ffb703", "#b5e48c", "#e0aaff",
                                                     "#ff9f9f", "#80ded9", "#f2cc8f", "#a3b1ff"};

struct Box;
// Boxes side by side, none narrower than `least`, in as many rows as they need.
struct Grid {
  int least;
  std::vector<Box> boxes;
};

struct Box {
  std::string title;
  std::string details;  // shown when the pointer rests on the box
  std::string style;    // class in the style sheet
  std::string fill;     // replaces the colour of the style
  std::vector<Grid> grids;
};

std::string Attribute(const char* name, int value) {
  return std::string(" ") + name + "=\"" + std::to_string(value) + "\"";
}

class Painter {
 public:
  // Draws the box and returns its height.
  int Draw(const Box& box, int x, int y, int width) {
    const size_t rect = text_.size();  // the height is known once the content is drawn
    text_ += DrawTitle(box, x, y, width);
    int height = kLine + kGap / 2;
    for (const Grid& grid : box.grids) height += DrawGrid(grid, x + kGap, y + height, width - 2 * kGap);
    if (!box.grids.empty()) height += kGap / 2;
    text_.insert(rect, "<g><title>" + EscapeXml(box.details.empty() ? box.title : box.details) +
                           "</title><rect class=\"" + box.style + "\"" +
                           (box.fill.empty() ? "" : " style=\"fill:" + box.fill + "\"") + Attribute("x", x) +
                           Attribute("y", y) + Attribute("width", width) + Attribute("height", height) + " rx=\"3\"/>");
    text_ += "</g>\n";
    return height;
  }
  const std::string& text() const { return text_; }

 private:
  static std::string DrawTitle(const Box& box, int x, int y, int width) {
    const auto room = static_cast<size_t>(std::max(0, width - kGap) / kLetter);
    std::string title = box.title;
    if (title.size() > room) title = room < 4 ? "" : title.substr(0, room - 2) + "..";
    if (title.empty()) return "";
    return "<text" + Attribute("x", x + kGap / 2 + 1) + Attribute("y", y + kLine - 2) + ">" + EscapeXml(title) +
           "</text>";
  }

  int DrawGrid(const Grid& grid, int x, int y, int width) {
    const int count = static_cast<int>(grid.boxes.size());
    if (count == 0) return 0;
    const int most = std::clamp((width + kGap) / (grid.least + kGap), 1, count);
    const int rows = (count + most - 1) / most, columns = (count + rows - 1) / rows;
    const int each = (width - (columns - 1) * kGap) / columns;
    int height = 0;
    for (int row = 0; row < rows; ++row) {
      int tallest = 0;
      for (int i = row * columns; i < std::min(count, (row + 1) * columns); ++i) {
        const Box& box = grid.boxes[static_cast<size_t>(i)];
        tallest = std::max(tallest, Draw(box, x + (i % columns) * (each + kGap), y + height, each));
      }
      height += tallest + kGap;
    }
    return height;
  }

  std::string text_;
};

// Builds the boxes of a machine with its ranks in them.
class Plan {
 public:
  Plan(const Machine& machine, const std::vector<Seat>& seats) : machine_(machine), seats_(seats) {}

  Box Whole() const {
    Box box{Describe(machine_), "", "machine", "", {}};
    Grid packages{270, {}}, others{190, {}};
    for (size_t i = 0; i < machine_.packages.size(); ++i) packages.boxes.push_back(PackageBox(i));
    for (const Node& node : machine_.nodes) {
      if (machine_.PackageOf(node.id) != kNowhere) continue;
      others.boxes.push_back({Describe(node), Describe(node) + ", memory only", "node", "", {Devices(node.id)}});
    }
    box.grids = {std::move(packages), std::move(others), Devices(kNowhere)};
    return box;
  }

 private:
  // Returns "rank 2" or "ranks 0-3", for the ranks whose seats match, then `text`. The ranks come first, because the
  // end may be cut off.
  template <class Fn>
  std::string WithRanks(const std::string& text, Fn yes) const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < seats_.size(); ++rank)
      if (yes(seats_[rank])) ranks.push_back(static_cast<int>(rank));
    return ranks.empty() ? text : (ranks.size() == 1 ? "rank " : "ranks ") + RangeText(ranks) + ": " + text;
  }
  static bool Has(const Seat& seat, const Core& core) {
    return std::any_of(core.processors.begin(), core.processors.end(), [&](int processor) {
      return std::binary_search(seat.processors.begin(), seat.processors.end(), processor);
    });
  }

  Box CoreBox(const Core& core) const {
    std::vector<int> processors = core.processors;
    std::sort(processors.begin(), processors.end());
    const auto mine = [&](const Seat& seat) { return Has(seat, core); };
    const std::string numbers = RangeText(processors);
    Box box{numbers, WithRanks(Describe(core) + ", processors " + numbers, mine), "core", "", {}};
    const auto first = std::find_if(seats_.begin(), seats_.end(), mine);
    if (first != seats_.end())
      box.fill = kRankColours[static_cast<size_t>(first - seats_.begin()) % kRankColours.size()];
    return box;
  }

  Box GroupBox(const Group& group) const {
    Grid cores{40, {}};
    for (const Core& core : group.cores) cores.boxes.push_back(CoreBox(core));
    const std::string title = WithRanks(Describe(group), [&](const Seat& seat) {
      return std::any_of(group.cores.begin(), group.cores.end(), [&](const Core& core) { return Has(seat, core); });
    });
    return {title, "", "group", "", {std::move(cores)}};
  }

  Grid Devices(int node) const {
    Grid devices{190, {}};
    for (size_t i = 0; i < machine_.nics.size(); ++i) {
      const Nic& nic = machine_.nics[i];
      const std::string title =
          WithRanks(Describe(nic), [i](const Seat& seat) { return seat.nic == static_cast<int>(i); });
      if (nic.node == node) devices.boxes.push_back({title, "", "nic", "", {}});
    }
    for (const Gpu& gpu : machine_.gpus)
      if (gpu.node == node) devices.boxes.push_back({Describe(gpu), "", "gpu", "", {}});
    return devices;
  }

  Box PackageBox(size_t index) const {
    const Package& package = machine_.packages[index];
    Grid nodes{150, {}};
    for (const Node& node : machine_.nodes) {
      Grid groups{104, {}};
      for (const Group& group : package.groups)
        if (group.node == node.id) groups.boxes.push_back(GroupBox(group));
      if (groups.boxes.empty()) continue;
      Box box{Describe(node), "", "node", "", {std::move(groups)}};
      if (machine_.PackageOf(node.id) == static_cast<int>(index)) box.grids.push_back(Devices(node.id));
      nodes.boxes.push_back(std::move(box));
    }
    return {"package " + std::to_string(index), "", "package", "", {std::move(nodes)}};
  }

  const Machine& machine_;
  const std::vector<Seat>& seats_;
};

constexpr char kStyle[] =
    "text{font:12px monospace;fill:#1d2433}rect{stroke:#5b6475;stroke-width:1}.machine{fill:#ffffff}"
    ".package{fill:#eef1f6}.node{fill:#dfe6ef}.group{fill:#fbf6e4}.core{fill:#ffffff}"
    ".nic{fill:#ffd9b8}.gpu{fill:#cfe8cf}";

}  // namespace

std::string DrawSvg(const Machine& machine, const std::vector<Seat>& seats) {
  Painter painter;
  const int height = painter.Draw(Plan(machine, seats).Whole(), 1, 1, kWidth - 2) + 2;
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + BeginSvg(kWidth, height, kStyle) + painter.text() +
         SvgWriter::kEnd;
}

}  // namespace axccl::topo
