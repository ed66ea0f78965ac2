#include "perf/common/view_options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "axccl/views.h"

namespace axccl::perf {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;  // elements; products stay far from overflow once memory is checked
constexpr int kMaxOperands = 100000;
constexpr int kMaxRank = 1 << 20;
const Shape kNoShape = {0};  // one dimension of any size

std::string Joined(const std::vector<int64_t>& numbers, const char* separator) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : separator) + std::to_string(number);
  return text;
}

Result<std::vector<int64_t>> ParseNumbers(const std::string& text, char separator, int64_t lowest) {
  std::vector<int64_t> numbers;
  for (const char* at = text.c_str();;) {
    char* end = nullptr;
    errno = 0;
    int64_t number = std::strtoll(at, &end, 10);
    bool ends = *end == separator || *end == '\0';
    if (end == at || !ends || errno != 0 || number < lowest || number > kMaxSize || number < -kMaxSize) {
      return MakeStatus(Code::kInvalidArgument, "'%s' is not a number of %lld or more, or several with '%c' between",
                        text.c_str(), static_cast<long long>(lowest), separator);
    }
    numbers.push_back(number);
    if (*end == '\0') break;
    at = end + 1;
  }
  if (numbers.size() <= AXCCL_MAX_DIMS) return numbers;
  return MakeStatus(Code::kInvalidArgument, "'%s' has %zu dimensions; views have at most %d", text.c_str(),
                    numbers.size(), AXCCL_MAX_DIMS);
}

// The requirements of a dimension option.
std::string RefuseDim(const char* option, int dim, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    int dims = static_cast<int>(shape.size());
    if (-dims <= dim && dim < dims) continue;
    return std::string("option ") + option + " " + std::to_string(dim) + ": " +
           (shape == kNoShape ? "an operand without --shape" : "the shape " + Joined(shape, ",")) + " has dimensions " +
           std::to_string(-dims) + " to " + std::to_string(dims - 1);
  }
  return "";
}

std::string RefuseSplit(const char* option, int dim, const std::vector<Shape>& shapes, int ranks) {
  for (const Shape& shape : shapes) {
    int64_t size = shape[static_cast<size_t>(dim < 0 ? dim + static_cast<int>(shape.size()) : dim)];
    if (size % ranks == 0) continue;
    return std::string("option ") + option + " " + std::to_string(dim) + ": " + std::to_string(ranks) +
           " ranks do not divide size " + std::to_string(size) + " of the shape " + Joined(shape, ",") +
           "; give a multiple";
  }
  return "";
}

// Refuses sizes whose products would overflow elsewhere.
std::string RefuseHuge(const ViewOptions& o, int ranks) {
  double elements = 0;
  for (const Shape& shape : o.shapes) {
    for (const std::vector<int64_t>* strides : {&o.strides, &o.out_strides}) {
      double product = ranks;
      double reach = 0;
      for (size_t d = 0; d < shape.size(); ++d) {
        product *= static_cast<double>(shape[d]);
        if (d < strides->size()) reach += std::abs(static_cast<double>(shape[d]) * static_cast<double>((*strides)[d]));
      }
      elements += std::max(product, reach * ranks);
    }
  }
  if (elements < 1e15) return "";
  return "option " + ViewText(o) + ": reaches over more than 1e15 elements; give smaller sizes and strides";
}

// Refuses options that this collective does not use.
std::string RefuseUnused(const char* collective, ViewKind kind, const ViewOptions& o) {
  struct Use {
    const char* name;
    std::optional<int> value;
    bool used;
    const char* instead;
  };
  bool both = kind == ViewKind::kSplitConcat;
  bool one = kind == ViewKind::kConcat || kind == ViewKind::kSplit;
  const char* remedy = both ? "use --split-dim and --concat-dim" : one ? "use --dim" : "leave it out";
  for (const Use& use : {Use{"--dim", o.dim, one, remedy}, Use{"--split-dim", o.split_dim, both, remedy},
                         Use{"--concat-dim", o.concat_dim, both, remedy}}) {
    if (!use.value || use.used) continue;
    return std::string("option ") + use.name + " " + std::to_string(*use.value) + ": " + collective +
           " has no such dimension; " + use.instead;
  }
  return "";
}

std::string RefuseStrides(const char* option, const std::vector<int64_t>& strides, const ViewOptions& o, bool zeros) {
  if (strides.empty()) return "";
  std::string start = std::string("option ") + option + " " + Joined(strides, ",") + ": ";
  if (o.is_list) return start + "operands of a list have no gaps; leave it out, or give one --shape";
  if (o.shapes.empty()) return start + "needs --shape, which says how many elements there are";
  size_t dims = o.shapes[0].size();
  if (strides.size() != dims) return start + "give " + std::to_string(dims) + ", one for each dimension";
  for (size_t i = 0; i < dims; ++i) {
    if (strides[i] == 0 && o.shapes[0][i] > 1 && !zeros) {
      return start + "an output's elements need places of their own; give strides other than 0";
    }
  }
  return "";
}

// "[0,1]"
std::string GroupText(const std::vector<int64_t>& group) { return "[" + Joined(group, ",") + "]"; }

std::string GroupsText(const std::vector<std::vector<int64_t>>& groups) {
  std::string text;
  for (const std::vector<int64_t>& group : groups) text += (text.empty() ? "" : ",") + GroupText(group);
  return "[" + text + "]";
}

std::string RefuseGroups(const std::vector<std::vector<int64_t>>& groups, int ranks) {
  const std::string start = "option --groups " + GroupsText(groups) + ": ";
  const std::string remedy = "; name each of the ranks 0 to " + std::to_string(ranks - 1) + " once";
  std::vector<bool> named(static_cast<size_t>(ranks), false);
  for (const std::vector<int64_t>& group : groups) {
    if (group.size() != groups[0].size()) {
      return start + GroupText(group) + " is not as long as " + GroupText(groups[0]) + "; give lists of one length";
    }
    for (int64_t rank : group) {
      if (rank >= ranks) {
        return start + "there is no rank " + std::to_string(rank) + ", the communicator has " + std::to_string(ranks) +
               remedy;
      }
      if (named[static_cast<size_t>(rank)]) return start + "rank " + std::to_string(rank) + " is there twice" + remedy;
      named[static_cast<size_t>(rank)] = true;
    }
  }
  const auto missing = std::find(named.begin(), named.end(), false);
  if (groups.empty() || missing == named.end()) return "";
  return start + "rank " + std::to_string(missing - named.begin()) + " is missing" + remedy;
}

}  // namespace

Result<Shape> ParseShape(const std::string& text, char separator) { return ParseNumbers(text, separator, 0); }

Result<std::vector<int64_t>> ParseStrides(const std::string& text) { return ParseNumbers(text, ',', -kMaxSize); }

Result<std::vector<Shape>> ParseList(const std::string& text) {
  Result<Shape> count = ParseShape(text, ',');
  if (count.ok() && count.value().size() == 1) {
    int64_t operands = count.value()[0];
    if (operands >= 1 && operands <= kMaxOperands) return ModelShapes(static_cast<int>(operands));
    return MakeStatus(Code::kInvalidArgument, "'%s' is not a number of operands from 1 to %d", text.c_str(),
                      kMaxOperands);
  }
  std::vector<Shape> shapes;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    AXCCL_ASSIGN_OR_RETURN(Shape shape, ParseShape(text.substr(begin, end - begin), 'x'));
    shapes.push_back(std::move(shape));
    begin = end + 1;
  }
  return shapes;
}

Result<std::vector<std::vector<int64_t>>> ParseGroups(const std::string& text) {
  const Status malformed = MakeStatus(
      Code::kInvalidArgument, "'%s' is not lists of ranks from 0 to %d such as [[0,1],[2,3]]", text.c_str(), kMaxRank);
  std::vector<std::vector<int64_t>> groups;
  const char* at = text.c_str();
  auto skip = [&at](char wanted) {
    while (*at == ' ') ++at;
    if (*at != wanted) return false;
    ++at;
    return true;
  };
  if (!skip('[')) return malformed;
  do {
    std::vector<int64_t>& group = groups.emplace_back();
    if (!skip('[')) return malformed;
    do {
      char* end = nullptr;
      errno = 0;
      const int64_t rank = std::strtoll(at, &end, 10);
      if (end == at || errno != 0 || rank < 0 || rank > kMaxRank) return malformed;
      group.push_back(rank);
      at = end;
    } while (skip(','));
    if (!skip(']')) return malformed;
  } while (skip(','));
  if (!skip(']') || *at != '\0') return malformed;
  return groups;
}

std::vector<Shape> ModelShapes(int count, int64_t width) {
  const int64_t w = width;
  const std::vector<Shape> block = {{w}, {w}, {3 * w, w}, {3 * w}, {w, w},     {w},
                                    {w}, {w}, {4 * w, w}, {4 * w}, {w, 4 * w}, {w}};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) shapes.push_back(block[i % block.size()]);
  return shapes;
}

std::string RefuseViews(const char* collective, ViewKind kind, const ViewOptions& o, int ranks) {
  if (!o.given) return "";
  if (kind == ViewKind::kNone) {
    return "option " + ViewText(o) + ": " + collective + " has no form on views; leave it out";
  }
  std::string refusal = RefuseGroups(o.groups, ranks);
  ranks = o.RanksTogether(ranks);
  if (refusal.empty()) refusal = RefuseUnused(collective, kind, o);
  if (refusal.empty()) refusal = RefuseHuge(o, ranks);
  // Without a shape there is one dimension, which the tool has made divisible.
  const std::vector<Shape> shapes = o.shapes.empty() ? std::vector<Shape>{kNoShape} : o.shapes;
  bool concat = kind == ViewKind::kConcat || kind == ViewKind::kSplitConcat;
  bool split = kind == ViewKind::kSplit || kind == ViewKind::kSplitConcat;
  bool both = kind == ViewKind::kSplitConcat;
  const char* split_name = both ? "--split-dim" : "--dim";
  if (refusal.empty() && split) refusal = RefuseDim(split_name, o.SplitDim(), shapes);
  if (refusal.empty() && concat) refusal = RefuseDim(both ? "--concat-dim" : "--dim", o.ConcatDim(), shapes);
  if (refusal.empty() && split) refusal = RefuseSplit(split_name, o.SplitDim(), shapes, ranks);
  if (refusal.empty()) refusal = RefuseStrides("--strides", o.strides, o, true);
  if (refusal.empty()) refusal = RefuseStrides("--out-strides", o.out_strides, o, false);
  return refusal;
}

std::string ViewText(const ViewOptions& o) {
  std::string text;
  auto add = [&text](const char* name, const std::string& value) {
    text += (text.empty() ? "" : " ") + std::string(name) + " " + value;
  };
  if (o.is_list) {
    int64_t elements = 0;
    for (const Shape& shape : o.shapes) {
      int64_t product = 1;
      for (int64_t size : shape) product *= size;
      elements += product;
    }
    add("--list", "of " + std::to_string(o.shapes.size()) + " operands, " + std::to_string(elements) + " elements");
  } else if (!o.shapes.empty()) {
    add("--shape", Joined(o.shapes[0], ","));
  }
  if (o.dim) add("--dim", std::to_string(*o.dim));
  if (o.split_dim) add("--split-dim", std::to_string(*o.split_dim));
  if (o.concat_dim) add("--concat-dim", std::to_string(*o.concat_dim));
  if (!o.strides.empty()) add("--strides", Joined(o.strides, ","));
  if (!o.out_strides.empty()) add("--out-strides", Joined(o.out_strides, ","));
  if (!o.groups.empty()) add("--groups", GroupsText(o.groups));
  return text;
}

}  // namespace axccl::perf
