// Products of matrices with a collective before or after them, on sharded tensors.
//
// A tensor's dimensions have labels, one letter each, as in an einsum: the product c of a and b is the sum over all
// labels that c lacks. A label is sharded in an operand if each rank holds an equal part of it. The product is computed
// by a loop over labels, and compared with the product of the whole tensors, which every rank computes for itself from
// the function that generates the inputs. Values are small integers, so that every type holds all sums exactly.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "tests/collectives/tensor.h"
#include "tests/collectives/view_cases.h"
#include "tests/harness/guarded_buffer.h"
#include "tests/harness/random.h"

namespace axccl::tests {

template <class T>
struct PerLabel {
  std::array<T, 26> of{};
  T& operator[](char label) { return of[static_cast<size_t>(label - 'a')]; }
  const T& operator[](char label) const { return of[static_cast<size_t>(label - 'a')]; }
};
struct Span {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
using Point = PerLabel<int64_t>;
using Box = PerLabel<Span>;

// Calls visit() for every point of the box along these labels, the last one fastest; *point is where it is.
template <class Visit>
void ForEachPoint(const std::string& labels, const Box& box, Point* point, const Visit& visit) {
  for (const char label : labels) {
    if (box[label].size() <= 0) return;
    (*point)[label] = box[label].begin;
  }
  for (;;) {
    visit();
    size_t d = labels.size();
    while (d > 0 && ++(*point)[labels[d - 1]] == box[labels[d - 1]].end) {
      --d;
      (*point)[labels[d]] = box[labels[d]].begin;
    }
    if (d == 0) return;
  }
}

struct Operand {
  const char* labels = "";   // "": a factor of 1
  const char* sharded = "";  // which of them
};

enum class Flow : uint8_t {
  kCollectFirst,   // the collective brings a together, and each chunk is multiplied by b when it is there
  kMultiplyFirst,  // each chunk of the product of this rank's a and b is declared ready when it is computed
};

struct Shape {
  const char* name;
  Flow flow;
  axcclPipelineKind_t kind;
  Operand a, b, c;
  char dim;  // along which the ranks' blocks follow each other; unused where there is one block
  // Blocks are cut along one of these labels.
  const char* slice_labels;
  std::vector<axcclChunkOrder_t> orders;
  bool produced;
  bool strict = false;  // a chunk is declared ready when all ranks have used the one before

  bool HasBlocks() const { return kind != axcclPipelineAllReduce; }
};
const std::vector<Shape>& AllShapes();

// A shape with sizes.
struct ShapeCase {
  const Shape* shape = nullptr;
  int ranks = 0;
  int64_t slices = 1;
  ncclDataType_t type = ncclFloat32;
  axcclChunkOrder_t order = axcclDefaultOrder;
  uint64_t seed = 0;
  // Drawn by the seed:
  PerLabel<int64_t> extents;
  char slice_label = 0;
  std::string a, b, c;                                // the labels, in the order of dimensions
  int64_t largest = 1;                                // of the inputs' values, by magnitude
  bool follows = false;                               // the producer waits for what depends on each chunk
  harness::Memory memory = harness::Memory::kMalloc;  // of what the collective touches

  std::string Text() const;
  std::string AllLabels() const { return a + b + c; }
  // The labels that the product sums over.
  std::string SummedLabels() const;
  // All of the tensor, or the rank's part of it.
  Box Whole() const;
  Box Part(const char* sharded, int rank) const;
  // The operand that the collective moves or reduces, and its box on a rank, before and after.
  const std::string& Collected() const { return shape->flow == Flow::kCollectFirst ? a : c; }
  Box CollectedBox(axcclSide_t side, int rank) const;
  // A chunk of it.
  Box ChunkBox(axcclSide_t side, int rank, int64_t chunk) const;
};
ShapeCase MakeCase(const Shape& shape, int ranks, int64_t slices, ncclDataType_t type, axcclChunkOrder_t order,
                   uint64_t seed);

// The values of all ranks together in one start.
class Truth {
 public:
  Truth(const ShapeCase& c, int start);
  int64_t a(const Point& point) const { return At(a_, c_.a, point); }
  int64_t b(const Point& point) const { return c_.b.empty() ? 1 : At(b_, c_.b, point); }
  int64_t product(const Point& point) const { return At(product_, c_.c, point); }
  // The product of what lies in the box: the part of a point's sum that a rank has.
  int64_t Sum(Point point, const Box& box) const;
  int64_t collected(const Point& point) const {
    return c_.shape->flow == Flow::kCollectFirst ? a(point) : product(point);
  }

 private:
  size_t IndexOf(const std::string& labels, const Point& point) const;
  int64_t At(const std::vector<int64_t>& values, const std::string& labels, const Point& point) const {
    return values[IndexOf(labels, point)];
  }
  std::vector<int64_t> Draw(const std::string& labels, uint64_t salt) const;

  const ShapeCase& c_;
  const std::string summed_;  // labels
  std::vector<int64_t> a_, b_, product_;
};

// What a rank holds of a tensor, somewhere in memory: dimensions in any order and direction, with gaps.
class Held {
 public:
  Held(const std::string& labels, const Box& box, ncclDataType_t type, harness::Memory memory, harness::Random* random);
  Held(const Held&) = delete;

  const std::string& labels() const { return labels_; }
  const Box& box() const { return box_; }
  const axcclView_t& View() { return tensor_->View(); }
  char* AddressOf(const Point& point) const;
  // The element must have been set: garbage need not be a number.
  int64_t Get(const Point& point) const;
  bool Has(const Point& point, int64_t value) const;
  void Set(const Point& point, int64_t value);
  // Gives every element of the box a value that is wrong.
  void Poison();
  template <class Value>
  void Fill(const Box& box, const Value& value) {
    Point point;
    ForEachPoint(labels_, box, &point, [&] { Set(point, value(point)); });
  }
  // The first element in the box that has not its value; "" if there is none.
  template <class Value>
  std::string FirstWrong(const Box& box, const Value& value) const {
    std::string wrong;
    Point point;
    ForEachPoint(labels_, box, &point, [&] {
      if (wrong.empty() && !Has(point, value(point))) wrong = WrongText(point, value(point));
    });
    return wrong;
  }
  // The same for everything, with the bytes between and around the elements.
  template <class Value>
  std::string Check(const Value& value) const {
    std::string wrong = FirstWrong(box_, value);
    return wrong.empty() ? CheckOthers() : wrong;
  }

 private:
  std::string WrongText(const Point& point, int64_t expected) const;
  std::string CheckOthers() const;

  const std::string labels_;
  const Box box_;
  const ncclDataType_t type_;
  std::unique_ptr<harness::GuardedArena> arena_;
  std::unique_ptr<Tensor> tensor_;
};

// Adds the product of a and b to c, for those points that all of them hold and that are in the box.
void MultiplyAdd(const ShapeCase& shape, const Held& a, const Held* b, const Box& box, Held* c);

}  // namespace axccl::tests
