// The op board of a rank, for tests.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/timing.h"

namespace axccl::harness {

// All operations of the rank, as `comm` sees them.
inline std::vector<axcclOpInfo_t> ReadBoard(ncclComm_t comm, int rank) {
  constexpr int kMost = 1000;
  std::vector<axcclOpInfo_t> ops(kMost);
  ops[0].size = sizeof(ops[0]);
  int count = 0;
  EXPECT_OK(axcclCommGetOps(comm, rank, ops.data(), kMost, &count));
  EXPECT_LE(count, kMost);
  ops.resize(static_cast<size_t>(std::clamp(count, 0, kMost)));
  return ops;
}

// "under way #3", "done #0 message with 1 on 7" (the id of a created channel), "done #0 start 2/4 in 3/8 out".
inline std::string BoardText(const axcclOpInfo_t& op) {
  constexpr const char* kStates[] = {"under way", "done", "failed", "enqueued"};
  std::string text = kStates[op.state];
  text += " #" + std::to_string(op.sequence);
  if (op.use == axcclOpMessage) text += " message";
  if (op.use == axcclOpOfPipeline) text += " start";
  if (op.peer >= 0) text += " with " + std::to_string(op.peer);
  if (op.created != 0) text += " on " + std::to_string(op.channel_id);
  if (op.in_chunks + op.out_chunks != 0)
    text += " " + std::to_string(op.in_ready) + "/" + std::to_string(op.in_chunks) + " in " +
            std::to_string(op.out_there) + "/" + std::to_string(op.out_chunks) + " out";
  return text;
}
using Texts = std::vector<std::string>;
inline Texts Sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}
// The same of all operations, in the order of the board.
inline Texts BoardTexts(ncclComm_t comm, int rank) {
  Texts texts;
  for (const axcclOpInfo_t& op : ReadBoard(comm, rank)) texts.push_back(BoardText(op));
  return texts;
}

// Returns once the process is stopped (RankContext::Freeze), or a rank of the run has failed.
inline void AwaitStop(const RankContext& context, pid_t process) {
  for (std::string text; !context.AnyFailed(); harness::LookLater()) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::getline(stat, text);
    const size_t name = text.rfind(')');
    if (name != std::string::npos && text.compare(name, 3, ") T") == 0) return;
  }
}

}  // namespace axccl::harness
