#include "src/tensor/view.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

namespace axccl::tensor {

namespace {

using Wide = __int128;  // sums of a few products of 63-bit numbers

constexpr Wide kMaxBytes = INT64_MAX;

std::string Name(const OperandName& operand) {
  return operand.index < 0 ? operand.name : std::string(operand.name) + " " + std::to_string(operand.index);
}

std::string Join(const int64_t* values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  return text + "]";
}

// A dimension of size 2 or more: x * stride with 0 <= x <= top.
struct Term {
  uint64_t stride;
  uint64_t top;
};

// Sorts the largest stride first. At most 16 terms, mostly in order: no need for a general sort.
void SortByStride(Term* terms, int count) {
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0 && terms[j - 1].stride < terms[j].stride; --j) std::swap(terms[j - 1], terms[j]);
  }
}

// Sums x_1 * stride_1 + ... + x_n * stride_n with 0 <= x_i <= top_i: which numbers can they be?
//
// In general this is a knapsack problem. Here the strides are nested most of the time, so few x_i need to be tried at
// each term. The search gives up, and answers "yes", after kMaxSteps.
class StrideSums {
 public:
  void Add(uint64_t stride, uint64_t top) {
    if (stride != 0 && top != 0) terms_[count_++] = {stride, top};
  }

  // Whether a sum lies in [low, high].
  bool Reach(Wide low, Wide high) {
    Prepare();
    steps_ = 0;
    return Search(0, low, high);
  }

 private:
  static constexpr int kMaxTerms = 2 * kMaxDims;
  static constexpr int kMaxSteps = 4096;

  void Prepare() {
    SortByStride(terms_, count_);
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      // Equal strides act as one: x + y takes every value up to the sum of the tops.
      if (kept > 0 && terms_[kept - 1].stride == terms_[i].stride) {
        terms_[kept - 1].top += terms_[i].top;
      } else {
        terms_[kept++] = terms_[i];
      }
    }
    count_ = kept;
    max_[count_] = 0;
    gcd_[count_] = 0;
    gap_free_[count_] = true;
    for (int i = count_; i-- > 0;) {
      const uint64_t stride = terms_[i].stride;
      max_[i] = max_[i + 1] + Wide{stride} * terms_[i].top;
      gcd_[i] = std::gcd(gcd_[i + 1], stride);
      // The last term alone reaches every multiple of its stride. A further term leaves no gap either, if its stride is
      // a multiple of the step so far and at most one step more than the largest sum of the terms below it.
      gap_free_[i] =
          i + 1 == count_ || (gap_free_[i + 1] && gcd_[i] == gcd_[i + 1] && Wide{stride} <= max_[i + 1] + gcd_[i + 1]);
    }
  }

  bool Search(int i, Wide low, Wide high) {
    low = std::max(low, Wide{0});
    high = std::min(high, max_[i]);
    if (low > high) return false;
    if (i == count_) return true;
    const Wide step = gcd_[i];
    if ((low + step - 1) / step * step > high) return false;
    if (gap_free_[i] || ++steps_ > kMaxSteps) return true;
    const Wide stride = terms_[i].stride;
    const Wide first = low <= max_[i + 1] ? Wide{0} : (low - max_[i + 1] + stride - 1) / stride;
    const Wide last = std::min(Wide{terms_[i].top}, high / stride);
    for (Wide x = first; x <= last; ++x) {
      if (Search(i + 1, low - x * stride, high - x * stride)) return true;
      if (++steps_ > kMaxSteps) return true;
    }
    return false;
  }

  Term terms_[kMaxTerms];
  int count_ = 0;
  int steps_ = 0;
  // For the terms from i on: the largest sum, the common divisor, and whether every multiple of the divisor up to the
  // sum can be reached.
  Wide max_[kMaxTerms + 1];
  uint64_t gcd_[kMaxTerms + 1];
  bool gap_free_[kMaxTerms + 1];
};

uint64_t Magnitude(int64_t value) { return value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value); }

// The dimensions of size 2 and more by falling stride, which may be 0.
int MovingAxes(const View& view, Term* axes) {
  int count = 0;
  for (int d = 0; d < view.shape.dims; ++d) {
    if (view.shape.sizes[d] > 1)
      axes[count++] = {Magnitude(view.strides[d]), static_cast<uint64_t>(view.shape.sizes[d]) - 1};
  }
  SortByStride(axes, count);
  return count;
}

// Whether two different indices reach the same element: whether there are differences d_i, not all 0, whose steps add
// up to 0. Searches for each first axis k with d_k > 0; the d_i of smaller strides are free.
bool ReachesTwice(const View& view) {
  Term axes[kMaxDims];
  const int count = MovingAxes(view, axes);
  if (count > 0 && axes[count - 1].stride == 0) return true;
  Wide below = 0;  // the largest sum of the axes after k
  for (int k = count; k-- > 0;) {
    if (Wide{axes[k].stride} <= below) {
      StrideSums sums;
      sums.Add(axes[k].stride, axes[k].top - 1);
      for (int i = k + 1; i < count; ++i) sums.Add(axes[i].stride, 2 * axes[i].top);
      const Wide target = below - axes[k].stride;
      if (sums.Reach(target, target)) return true;
    }
    below += Wide{axes[k].stride} * axes[k].top;
  }
  return false;
}

bool IsEmpty(const Shape& shape) {
  return std::find(shape.sizes, shape.sizes + shape.dims, 0) != shape.sizes + shape.dims;
}

}  // namespace

bool operator==(const Shape& a, const Shape& b) {
  return a.dims == b.dims && std::equal(a.sizes, a.sizes + a.dims, b.sizes);
}

int64_t Elements(const Shape& shape) {
  if (IsEmpty(shape)) return 0;
  int64_t elements = 1;
  for (int d = 0; d < shape.dims; ++d) elements *= shape.sizes[d];
  return elements;
}

std::string Text(const Shape& shape) { return Join(shape.sizes, shape.dims); }

View DenseView(void* data, uint32_t element_size, const Shape& shape) {
  View view = {data, element_size, shape, {}};
  int64_t stride = 1;
  for (int d = shape.dims; d-- > 0;) {
    view.strides[d] = stride;
    if (__builtin_mul_overflow(stride, std::max(shape.sizes[d], int64_t{1}), &stride)) stride = INT64_MAX;
  }
  return view;
}

Status CheckView(const OperandName& operand, Role role, const View& view) {
  const int dims = view.shape.dims;
  if (dims < 0 || dims > kMaxDims)
    return MakeStatus(Code::kInvalidArgument, "%s: %s has %d dimensions; views have 0 to %d", operand.call,
                      Name(operand).c_str(), dims, kMaxDims);
  for (int d = 0; d < dims; ++d) {
    if (view.shape.sizes[d] < 0)
      return MakeStatus(Code::kInvalidArgument, "%s: %s has size %" PRId64 " along dimension %d; sizes are at least 0",
                        operand.call, Name(operand).c_str(), view.shape.sizes[d], d);
  }
  if (view.element_size == 0)
    return MakeStatus(Code::kInvalidArgument, "%s: %s has elements of 0 bytes; give its element type", operand.call,
                      Name(operand).c_str());
  Extent extent;
  if (!FindByteExtent(view, &extent))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s with sizes %s, strides %s and elements of %u bytes does not fit into 2^63 - 1 bytes",
                      operand.call, Name(operand).c_str(), Text(view.shape).c_str(), Join(view.strides, dims).c_str(),
                      view.element_size);
  if (IsEmpty(view.shape)) return Status();
  if (view.data == nullptr)
    return MakeStatus(Code::kInvalidArgument, "%s: %s of sizes %s has no data (a null pointer); give its address",
                      operand.call, Name(operand).c_str(), Text(view.shape).c_str());
  const Wide address = reinterpret_cast<uintptr_t>(view.data);
  if (address + extent.begin < 0 || address + extent.end > Wide{UINTPTR_MAX})
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s with sizes %s and strides %s leaves the address space: bytes %" PRId64 " to %" PRId64
                      " of %p",
                      operand.call, Name(operand).c_str(), Text(view.shape).c_str(), Join(view.strides, dims).c_str(),
                      extent.begin, extent.end, view.data);
  if (role == Role::kOutput && ReachesTwice(view))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: elements of %s overlap: with sizes %s and strides %s two indices reach one element; only "
                      "inputs may repeat elements (stride 0)",
                      operand.call, Name(operand).c_str(), Text(view.shape).c_str(), Join(view.strides, dims).c_str());
  return Status();
}

bool FindByteExtent(const View& view, Extent* extent) {
  *extent = Extent();
  if (IsEmpty(view.shape)) return true;
  Wide low = 0, high = view.element_size, elements = 1;
  for (int d = 0; d < view.shape.dims; ++d) {
    const Wide size = view.shape.sizes[d];
    elements *= size;
    const Wide reach = size > 1 ? (size - 1) * view.strides[d] : Wide{0};
    // Checked here, so that no product of the next iteration overflows.
    if (elements > kMaxBytes || reach > kMaxBytes || reach < -kMaxBytes) return false;
    (reach < 0 ? low : high) += reach * view.element_size;
  }
  if (elements * view.element_size > kMaxBytes || high - low > kMaxBytes) return false;
  *extent = {static_cast<int64_t>(low), static_cast<int64_t>(high)};
  return true;
}

Extent ByteExtent(const View& view) {
  Extent extent;
  FindByteExtent(view, &extent);
  return extent;
}

bool Overlap(const View& a, const View& b) {
  if (IsEmpty(a.shape) || IsEmpty(b.shape)) return false;
  const Extent ea = ByteExtent(a), eb = ByteExtent(b);
  const Wide a_low = Wide{reinterpret_cast<uintptr_t>(a.data)} + ea.begin;
  const Wide b_low = Wide{reinterpret_cast<uintptr_t>(b.data)} + eb.begin;
  const Wide a_size = Wide{ea.end} - ea.begin, b_size = Wide{eb.end} - eb.begin;
  if (a_low + a_size <= b_low || b_low + b_size <= a_low) return false;
  StrideSums sums;
  for (const View* view : {&a, &b}) {
    for (int d = 0; d < view->shape.dims; ++d) {
      if (view->shape.sizes[d] > 1)
        sums.Add(Magnitude(view->strides[d]) * view->element_size, static_cast<uint64_t>(view->shape.sizes[d]) - 1);
    }
  }
  // Let x be the distance of an element of a from a's lowest, and y the distance of an element of b from b's highest; x
  // + y is a sum of strides. If a's element starts t bytes after b's, x + y = t + origin. The two share a byte when
  // -size of a's < t < size of b's.
  const Wide origin = b_low + b_size - b.element_size - a_low;
  return sums.Reach(origin - (Wide{a.element_size} - 1), origin + (Wide{b.element_size} - 1));
}

void Collapse(Shape* shape, std::span<int64_t* const> strides) {
  if (IsEmpty(*shape)) {
    *shape = {1, {0}};
    for (int64_t* s : strides) s[0] = 1;
    return;
  }
  int kept = 0;
  for (int d = 0; d < shape->dims; ++d) {
    const int64_t size = shape->sizes[d];
    if (size == 1) continue;
    const bool merge = kept > 0 && std::all_of(strides.begin(), strides.end(), [&](const int64_t* s) {
                         return Wide{s[kept - 1]} == Wide{s[d]} * size;
                       });
    if (merge) {
      shape->sizes[kept - 1] *= size;
      for (int64_t* s : strides) s[kept - 1] = s[d];
      continue;
    }
    shape->sizes[kept] = size;
    for (int64_t* s : strides) s[kept] = s[d];
    ++kept;
  }
  shape->dims = kept;
}

Result<int> NormaliseDim(const OperandName& operand, const char* argument, int64_t dim, int dims, NegativeDims negative,
                         const char* constraint) {
  const bool from_end = negative == NegativeDims::kFromEnd;
  if (dim >= 0 && dim < dims) return static_cast<int>(dim);
  if (from_end && dim < 0 && dim >= -dims) return static_cast<int>(dim + dims);
  if (dims == 0)
    return MakeStatus(Code::kInvalidArgument, "%s: %s is %" PRId64 ", but %s has no dimensions; give it one%s",
                      operand.call, argument, dim, Name(operand).c_str(), constraint);
  return MakeStatus(Code::kInvalidArgument, "%s: %s is %" PRId64 ", but %s has %d dimensions; it must be in %d..%d%s%s",
                    operand.call, argument, dim, Name(operand).c_str(), dims, from_end ? -dims : 0, dims - 1,
                    from_end ? " (negative ones count from the end)" : "", constraint);
}

}  // namespace axccl::tensor
