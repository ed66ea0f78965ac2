// The description of one collective for the common engine: counts, bandwidth formulas, expected data, and the call.
//
// Plain data and stateless functions; each tool passes one constant of this type to PerfMain.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "axccl/views.h"
#include "nccl.h"
#include "perf/common/collective_rules.h"
#include "perf/common/view_options.h"

namespace axccl::perf {

// The position of a rank.
struct Position {
  int rank;
  int ranks;
  int root;
};

// One operation of one rank.
struct Call {
  const char* send;
  char* recv;
  size_t count;
  ncclDataType_t type;
  size_t element_bytes;
  ncclRedOp_t op;
  Position at;
  ncclComm_t comm;
  cudaStream_t stream;
  int step;  // see Collective::steps
};

// `count` received elements from `begin` on are elements source_first .. of rank `source`'s data, or of the reduction
// over all ranks (source = kReduced).
struct Segment {
  size_t begin;
  size_t count;
  int source;
  size_t source_first;
};

// One operation on views of one rank.
struct ViewCall {
  int count;
  const axcclView_t* in;
  const axcclView_t* out;
  int split_dim;
  int concat_dim;
  ncclRedOp_t op;
  int root;
  axcclChannel_t channel;
  cudaStream_t stream;
};

struct ViewForm {
  ViewKind kind = ViewKind::kNone;
  ncclResult_t (*run)(const ViewCall& call) = nullptr;
};

struct Collective {
  const char* name;  // "all_reduce"
  bool reduces;
  bool rooted;
  // The redop column for kinds that do not reduce. nccl-tests prints "sum" for sendrecv.
  const char* no_op_name;
  // NCCL defines an in-place form. Without one, the in-place columns measure the operation from the receive to the
  // send buffer, unchecked.
  bool in_place;
  // Calls of one operation that depend on each other; each is grouped over the ranks of a thread on its own.
  int (*steps)(int ranks);
  Counts (*counts)(size_t elements, size_t element_bytes, int ranks);
  // algbw = bytes(count, ...) / time; busbw = algbw * bus_factor(ranks).
  double (*bytes)(size_t argument, size_t element_bytes, int ranks);
  double (*bus_factor)(int ranks);
  // What the rank must have received; empty where the operation does not write the buffer.
  std::vector<Segment> (*expected)(const Counts& counts, const Position& at);
  ncclResult_t (*run)(const Call& call);
  // Returns "" or why that many ranks cannot run it.
  std::string (*refuses)(int ranks);
  // The same operation on views.
  ViewForm views = {};
};

// ---- rules that several collectives share ----

int OneStep(int ranks);
std::string AnyRanks(int ranks);
// The parts of all ranks, one after another.
std::vector<Segment> AllParts(const Counts& counts);
// One group of a send of `count` elements to rank `to` and a receive of as many from rank `from`.
ncclResult_t SendAndReceive(const Call& c, const char* send, int to, char* recv, int from, size_t count);

// main() of every tool.
int PerfMain(const Collective& collective, int argc, char** argv);

}  // namespace axccl::perf
