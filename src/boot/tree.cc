#include "src/boot/tree.h"

#include <algorithm>
#include <cstdint>

namespace axccl::boot {
namespace {

int Share(int total, int parts, int part) { return static_cast<int>(int64_t{total} * part / parts); }

// The place of `item` in the tree over [0, count).
Branch PlaceIn(int item, int count) {
  Branch place;
  place.end = count;
  for (int first = 0;;) {
    const int below = place.end - first - 1, parts = std::min(below, kFanout);
    place.children.clear();
    place.ends.clear();
    for (int part = 0; part < parts; ++part) {
      place.children.push_back(first + 1 + Share(below, parts, part));
      place.ends.push_back(first + 1 + Share(below, parts, part + 1));
    }
    if (item == first) return place;
    const size_t part = static_cast<size_t>(std::upper_bound(place.children.begin(), place.children.end(), item) -
                                            place.children.begin() - 1);
    place.parent = first;
    first = place.children[part];
    place.end = place.ends[part];
  }
}

}  // namespace

int RootOf(int rank, int nranks, int roots) {
  int root = static_cast<int>(int64_t{rank} * roots / nranks);
  while (root + 1 < roots && Share(nranks, roots, root + 1) <= rank) ++root;
  while (Share(nranks, roots, root) > rank) --root;
  return root;
}

Branch BranchOf(int rank, int nranks, int roots) {
  const int root = RootOf(rank, nranks, roots);
  const int first = Share(nranks, roots, root), members = Share(nranks, roots, root + 1) - first;
  Branch branch = PlaceIn(rank - first, members);
  if (branch.parent >= 0) branch.parent += first;
  branch.end += first;
  for (int& child : branch.children) child += first;
  for (int& end : branch.ends) end += first;
  if (rank != first) return branch;

  const Branch leaders = PlaceIn(root, roots);
  if (leaders.parent >= 0) branch.parent = Share(nranks, roots, leaders.parent);
  branch.end = Share(nranks, roots, leaders.end);
  for (size_t i = 0; i < leaders.children.size(); ++i) {
    branch.children.push_back(Share(nranks, roots, leaders.children[i]));
    branch.ends.push_back(Share(nranks, roots, leaders.ends[i]));
  }
  return branch;
}

bool ChecksInAt(int rank, int root, int nranks, int roots) {
  const int own = RootOf(rank, nranks, roots);
  if (own == root) return true;
  return rank == Share(nranks, roots, own) && PlaceIn(own, roots).parent == root;
}

}  // namespace axccl::boot
