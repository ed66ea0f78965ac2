// Converts the operands of axccl/views.h to those of the executor: reads and checks them, and finds their blocks.
#pragma once

#include <string>
#include <vector>

#include "axccl/views.h"
#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/exec/call/call.h"
#include "src/exec/call/operands.h"
#include "src/plan/contract.h"
#include "src/tensor/view.h"

namespace axccl::api {

// The options of a call, as far as the caller knows them; the defaults for NULL.
struct Options : axcclOptions_t {
  Options(const axcclOptions_t* given);  // NOLINT: a conversion
};

// The arguments of a call on views.
struct ViewRequest {
  const char* name;  // name of the call
  plan::Kind kind;
  int count;
  const axcclView_t* input;
  const axcclView_t* output;
  Options options;
  int dim = 0;  // as in tensor::Collective
  int concat_dim = 0;
  int root = 0;
  bool takes_tag = false;  // a message of its own
};

// The context in which the operands of one rank's call are checked.
struct ViewContext {
  const ViewRequest& request;
  plan::Contract contract;
  int position;  // of the rank

  // The index of an operand for messages; -1 stands for the only one.
  int Index(int index) const { return request.count == 1 ? -1 : index; }
  std::string Name(const char* side, int index) const {
    return request.count == 1 ? side : std::string(side) + " " + std::to_string(index);
  }
};

// One rank's views of one operand; it may lack one of them.
struct ViewPair {
  bool has_input = false, has_output = false;
  tensor::View input, output;
  DataType type = DataType::kInt8;

  const tensor::View* Input() const { return has_input ? &input : nullptr; }
  const tensor::View* Output() const { return has_output ? &output : nullptr; }
};

// Reads the operands, checks each by itself, and checks that both sides have the same datatype.
Status ReadOperands(const ViewContext& context, std::vector<ViewPair>* operands);
// Checks that no output of an operand overlaps anything of another operand.
Status CheckApart(const ViewContext& context, const std::vector<ViewPair>& operands);
// Checks that input and output of an operand do not overlap, or that `from` and `to`, the parts of them that may
// coincide (null: none may), are the same elements.
Status CheckInPlace(const ViewContext& context, int index, const ViewPair& operand, const tensor::View* from,
                    const tensor::View* to);
// Finds the blocks of an operand whose blocks have equal sizes, in the dimensions that the request names.
Status CheckOperand(const ViewContext& context, int index, const ViewPair& operand, tensor::Blocks* blocks);
// Converts what does not depend on the blocks; for an operand whose blocks have equal sizes, that is everything.
exec::ViewOperand Convert(const ViewPair& operand);
Status ConvertBlocks(const ViewContext& context, int index, const ViewPair& operand, const tensor::Blocks& blocks,
                     exec::ViewOperand* to);
// If operands of a list might be cut within elements of this operand, turns it into an operand of bytes.
Status LowerToBytes(const ViewContext& context, int index, exec::ViewOperand* operand);

// Finds this rank's operands in a group of `group_size` ranks in which it is at `position`. Reads only the structs, and
// ignores operands that the rank does not have.
Status FindOperands(const ViewRequest& request, int group_size, int position, exec::ViewList* list);

// Finds the outputs of a rank that is in no group of the channel and that therefore hold zeros afterwards; the list is
// empty if the caller passes none.
Status FindOutsideOperands(const ViewRequest& request, exec::ViewList* list);

// Makes the executor's calls for a list. The bucket cap, and the room for announcements of a channel, determine how
// many; each has at least one operand. An uneven list is one call.
Status MakeCalls(const ViewRequest& request, exec::ViewList list, std::vector<exec::Call>* calls);

// Puts the reduction into a call on views, if its kind has one, and checks that the options' scale goes with it.
Status ResolveOnViews(const ViewRequest& request, comm::CommHandle* comm, ncclRedOp_t op, exec::Call* call);

}  // namespace axccl::api
