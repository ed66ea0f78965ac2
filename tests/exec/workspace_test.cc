// The memory that operations work with: each member, operand and list has a place of its own, and a call like an
// earlier one allocates no memory.
#include "src/exec/host/workspace.h"

#include <gtest/gtest.h>

#include "tests/harness/failing_new.h"

namespace axccl::exec {
namespace {

// Uses all of it like a call on so many operands.
void Use(Workspace* workspace, size_t operands) {
  workspace->MakeRoomForViews(operands);
  workspace->ViewOf(1, operands - 1).input_step = 1;
  workspace->MakeRoom(operands);
  workspace->destinations()[operands - 1] = workspace;
  workspace->sources()[operands - 1] = workspace;
  workspace->factors()[operands - 1].u64 = 1;
  workspace->Boxes(operands)[operands - 1].data = workspace;
  workspace->Bounce(64 * operands)[64 * operands - 1] = std::byte{1};
  workspace->fold_space().operand[0] = std::byte{1};
}

// Prepared calls point to members' buffers.
TEST(Workspace, MembersBuffersStayWhereTheyAre) {
  Workspace workspace(3);
  MemberBuffers* const buffers[] = {&workspace.BuffersOf(0), &workspace.BuffersOf(1), &workspace.BuffersOf(2)};
  for (int position = 0; position < 3; ++position)
    buffers[position]->factor.u64 = 10u + static_cast<unsigned>(position);
  workspace.MakeRoomForMessages();
  Use(&workspace, 100);
  for (int position = 0; position < 3; ++position) {
    EXPECT_EQ(&workspace.BuffersOf(position), buffers[position]) << position;
    EXPECT_EQ(workspace.BuffersOf(position).factor.u64, 10u + static_cast<unsigned>(position));
  }
}

TEST(Workspace, EachMemberHasAViewOfEachOperand) {
  Workspace workspace(3);
  for (const size_t operands : {2, 5, 1}) {
    workspace.MakeRoomForViews(operands);
    const auto number = [operands](int position, size_t operand) {
      return static_cast<int64_t>(static_cast<size_t>(position) * operands + operand);
    };
    for (int position = 0; position < 3; ++position) {
      for (size_t o = 0; o < operands; ++o) workspace.ViewOf(position, o).input_step = number(position, o);
    }
    for (int position = 0; position < 3; ++position) {
      for (size_t o = 0; o < operands; ++o)
        EXPECT_EQ(workspace.ViewOf(position, o).input_step, number(position, o)) << position << " " << o;
    }
  }
}

TEST(Workspace, NoMemberHasBeenSentARecordAtFirst) {
  Workspace workspace(3);
  workspace.MakeRoomForMessages();
  workspace.SentTo(1) = 7;
  for (int position = 0; position < 3; ++position) EXPECT_EQ(workspace.SentTo(position), position == 1 ? 7u : 0u);
}

TEST(Workspace, ACallLikeAnEarlierOneTakesNoMemory) {
  Workspace workspace(2);
  Use(&workspace, 20);
  const FoldSpace* const fold_space = &workspace.fold_space();
  for (const size_t operands : {20, 3, 1, 20}) {
    const harness::FailingNew failing(1);
    Use(&workspace, operands);
    EXPECT_FALSE(harness::FailingNew::Failed()) << operands;
    EXPECT_EQ(&workspace.fold_space(), fold_space);  // allocated as aligned memory, which does not fail
  }
  const harness::FailingNew failing(1);
  EXPECT_THROW(Use(&workspace, 200), std::bad_alloc) << "the test sees allocations";
}

}  // namespace
}  // namespace axccl::exec
