// The options that turn a perf tool from NCCL's call to AxCCL's call on views: --shape, --list, --dim, --split-dim,
// --concat-dim, --strides, --out-strides and --groups.
//
// Plain values; stateless functions. Parsing checks what can be seen in a value itself; RefuseViews checks what depends
// on the collective and the number of ranks. Errors name the option, the value and the remedy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::perf {

using Shape = std::vector<int64_t>;

// Sizes of the output as those of the input, n ranks: divided by n along the split dimension, then multiplied by n
// along the concat dimension.
enum class ViewKind {
  kNone,         // has no form on views
  kSame,         // all_reduce, broadcast, reduce
  kConcat,       // all_gather, gather: --dim
  kSplit,        // reduce_scatter, scatter: --dim
  kSplitConcat,  // alltoall: --split-dim, --concat-dim
};

struct ViewOptions {
  bool given = false;         // any of them was
  std::vector<Shape> shapes;  // of the input of one rank, operand by operand; empty: one dimension, of -b/-e's sizes
  bool is_list = false;       // by --list
  std::optional<int> dim;
  std::optional<int> split_dim;
  std::optional<int> concat_dim;
  std::vector<int64_t> strides;      // of the input in elements; empty: row-major without gaps
  std::vector<int64_t> out_strides;  // of the output
  // Lists of ranks, each of which does the operation on its own, all at the same time; empty: one of all ranks.
  std::vector<std::vector<int64_t>> groups;
  // Ranks that take part in one operation, of a communicator of `ranks`.
  int RanksTogether(int ranks) const { return groups.empty() ? ranks : static_cast<int>(groups[0].size()); }
  // The dimensions of the call; 0 where not given.
  int SplitDim() const { return dim.value_or(split_dim.value_or(0)); }
  int ConcatDim() const { return dim.value_or(concat_dim.value_or(0)); }
};

// "64,512" with `separator` ','. Sizes are at least 0.
Result<Shape> ParseShape(const std::string& text, char separator);
// "64,-1,0".
Result<std::vector<int64_t>> ParseStrides(const std::string& text);
// "3": ModelShapes(3). "128x64,64,256x128": these shapes.
Result<std::vector<Shape>> ParseList(const std::string& text);
// "[[0,1],[2,3]]": at least one list, each of at least one rank.
Result<std::vector<std::vector<int64_t>>> ParseGroups(const std::string& text);
// The first `count` parameters of a stack of transformer blocks of width `width`, as one rank holds them: per block two
// norms, attention's weights and biases, and the two layers of a four times wider MLP, 12 tensors of width to
// 4 * width^2 elements.
std::vector<Shape> ModelShapes(int count, int64_t width = 128);

// "" or why these options do not fit a collective of that kind on a communicator of that many ranks.
std::string RefuseViews(const char* collective, ViewKind kind, const ViewOptions& options, int ranks);

// "--shape 64,512 --dim 1", as on the command line; a list is given by its length and elements.
std::string ViewText(const ViewOptions& options);

}  // namespace axccl::perf
