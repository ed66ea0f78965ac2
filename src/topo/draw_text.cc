#include <algorithm>

#include "src/topo/draw.h"

namespace axccl::topo {
namespace {

struct Branch {
  std::string label;
  std::vector<int> processors;  // empty: the branch shows none
  std::vector<Branch> branches;
  size_t count = 1;  // number of equal branches that it represents
};

// Whether two branches are equal except for how many they represent.
bool Alike(const Branch& a, const Branch& b) {
  return a.label == b.label &&
         std::equal(a.branches.begin(), a.branches.end(), b.branches.begin(), b.branches.end(),
                    [](const Branch& x, const Branch& y) { return x.count == y.count && Alike(x, y); });
}

// Makes `into` represent `other`, too.
void Absorb(Branch* into, const Branch& other) {
  into->processors.insert(into->processors.end(), other.processors.begin(), other.processors.end());
  for (size_t i = 0; i < into->branches.size(); ++i) Absorb(&into->branches[i], other.branches[i]);
}

void Add(Branch* parent, Branch child) {
  parent->processors.insert(parent->processors.end(), child.processors.begin(), child.processors.end());
  if (!parent->branches.empty() && Alike(parent->branches.back(), child)) {
    ++parent->branches.back().count;
    return Absorb(&parent->branches.back(), child);
  }
  parent->branches.push_back(std::move(child));
}

void AddGroup(const Group& group, Branch* node) {
  Branch tree{Describe(group), {}, {}};
  Branch* const parent = group.l3 == 0 ? node : &tree;
  for (const Core& core : group.cores) Add(parent, {Describe(core), core.processors, {}});
  if (parent == &tree) Add(node, std::move(tree));
}

void AddDevices(const Machine& machine, int node, Branch* tree) {
  for (const Nic& nic : machine.nics)
    if (nic.node == node) Add(tree, {"NIC " + Describe(nic), {}, {}});
  for (const Gpu& gpu : machine.gpus)
    if (gpu.node == node) Add(tree, {Describe(gpu), {}, {}});
}

Branch TreeOf(const Machine& machine, size_t package) {
  Branch tree{"package " + std::to_string(package), {}, {}};
  for (const Node& node : machine.nodes) {
    Branch part{Describe(node), {}, {}};
    for (const Group& group : machine.packages[package].groups)
      if (group.node == node.id) AddGroup(group, &part);
    if (part.branches.empty()) continue;
    // The devices of a node in several packages are drawn in the first of them.
    if (machine.PackageOf(node.id) == static_cast<int>(package)) AddDevices(machine, node.id, &part);
    Add(&tree, std::move(part));
  }
  return tree;
}

Branch TreeOf(const Machine& machine) {
  Branch tree{Describe(machine), {}, {}};
  for (size_t package = 0; package < machine.packages.size(); ++package) Add(&tree, TreeOf(machine, package));
  for (const Node& node : machine.nodes) {
    if (machine.PackageOf(node.id) != kNowhere) continue;
    Branch part{Describe(node) + " (memory only)", {}, {}};
    AddDevices(machine, node.id, &part);
    Add(&tree, std::move(part));
  }
  AddDevices(machine, kNowhere, &tree);
  return tree;
}

// Shortens a long text: the first ranges, the last one, and the number of processors. If consecutive processors are in
// different packages, there are many ranges.
std::string ShortRanges(std::vector<int> numbers) {
  constexpr size_t kMost = 40;
  std::sort(numbers.begin(), numbers.end());
  std::string text = RangeText(numbers);
  if (text.size() <= kMost) return text;
  const size_t last = text.rfind(',');
  return text.substr(0, text.rfind(',', kMost / 2)) + ",..," + text.substr(last + 1) + " (" +
         std::to_string(numbers.size()) + ")";
}

struct Line {
  std::string text;
  size_t columns;
  std::string processors;
};

size_t Columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void Draw(const Branch& branch, const std::string& before, const std::string& below, std::vector<Line>* lines) {
  const std::string text = before + (branch.count > 1 ? std::to_string(branch.count) + " x " : "") + branch.label;
  lines->push_back({text, Columns(text), ShortRanges(branch.processors)});
  for (const Branch& child : branch.branches) {
    const bool last = &child == &branch.branches.back();
    Draw(child, below + (last ? "└─ " : "├─ "), below + (last ? "   " : "│  "), lines);
  }
}

std::string Blanks(const std::string& beside, size_t width) {
  return std::string(width > beside.size() ? width - beside.size() : 0, ' ');
}
std::string Cell(const std::string& text, size_t width) { return text + Blanks(text, width) + "  "; }

std::string DrawSeats(const Machine& machine, const std::vector<Seat>& seats) {
  size_t width = std::string_view("processors").size();
  for (const Seat& seat : seats) width = std::max(width, ShortRanges(seat.processors).size());
  std::string text = "\nrank  " + Cell("processors", width) + Cell("nodes", 5) + "NIC\n";
  for (size_t rank = 0; rank < seats.size(); ++rank) {
    const Seat& seat = seats[rank];
    const std::string number = std::to_string(rank);
    const std::string nic = seat.nic == kNowhere ? "-" : machine.nics[static_cast<size_t>(seat.nic)].name;
    text +=
        Blanks(number, 4) + number + "  " + Cell(ShortRanges(seat.processors), width) + Cell(RangeText(seat.nodes), 5);
    text += nic + "\n";
  }
  return text;
}

}  // namespace

std::string DrawText(const Machine& machine, const std::vector<Seat>& seats) {
  std::vector<Line> lines;
  const Branch tree = TreeOf(machine);
  Draw(tree, "", "", &lines);
  size_t width = 0;
  // The first line shows all processors, so it is long and does not count.
  for (size_t i = 1; i < lines.size(); ++i) width = std::max(width, lines[i].columns);
  std::string text = lines[0].text + "\n";
  for (size_t i = 1; i < lines.size(); ++i) {
    text += lines[i].text;
    if (!lines[i].processors.empty()) text += std::string(width - lines[i].columns + 2, ' ') + lines[i].processors;
    text += "\n";
  }
  return seats.empty() ? text : text + DrawSeats(machine, seats);
}

}  // namespace axccl::topo
