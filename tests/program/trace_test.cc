// What happened when as trace events.
#include "tools/axccl-program/trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "src/program/program.h"

namespace axccl::program {
namespace {

Operation OperationOf(OpKind kind, Id id) {
  Operation operation;
  operation.kind = kind;
  operation.id = id;
  return operation;
}

std::string LinesOf(const std::string& trace) {
  std::string lines;
  std::istringstream all(trace);
  for (std::string line; std::getline(all, line);) {
    const size_t tid = line.find("\"tid\":");
    if (line.find("\"ph\":\"X\"") != std::string::npos) lines += line.substr(tid + 6, line.find(',', tid) - tid - 6);
  }
  return lines;
}

// A line of Perfetto cannot show what overlaps. Sends of rank 0 go on while it receives and sends; rank 1's do not.
TEST(Trace, PutsWhatOverlapsOnLinesOfItsOwn) {
  const Operation send = OperationOf(OpKind::kSend, 1), recv = OperationOf(OpKind::kRecv, 2),
                  add = OperationOf(OpKind::kAdd, 3);
  std::vector<SimulatedEvent> events;
  for (const int rank : {0, 1}) {
    const double late = rank == 0 ? 1.5 : 0;
    events.push_back({&send, rank, true, 0, 1 + late, 8});
    events.push_back({&add, rank, false, 0, 1, 8});
    events.push_back({&send, rank, true, 1, 2 + late, 8});
    events.push_back({&recv, rank, true, 2, 3, 8});
    events.push_back({&send, rank, true, 3, 4 + late, 8});
    events.push_back({&recv, rank, true, 4, 5, 8});
  }
  const std::string trace = tools::TraceOf(events);
  EXPECT_EQ(LinesOf(trace),
            "314232"
            "212222")
      << trace;
  EXPECT_NE(trace.find("\"pid\":0,\"tid\":4,\"args\":{\"name\":\"communication beside it\"}"), std::string::npos);
  EXPECT_EQ(trace.find("\"pid\":1,\"tid\":3"), std::string::npos);
}

}  // namespace
}  // namespace axccl::program
