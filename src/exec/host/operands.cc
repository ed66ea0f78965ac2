#include "src/exec/host/operands.h"

#include "src/exec/host/flat_operands.h"
#include "src/exec/host/uneven_operands.h"
#include "src/exec/host/view_operands.h"

namespace axccl::exec {
namespace {

constinit const FlatOperands kFlat;
constinit const EvenOperands kEven;
constinit const UnevenOperands kUneven;

}  // namespace

const Operands* Operands::FormOf(const Call& call) {
  if (call.views == nullptr) return &kFlat;
  return call.uneven() ? static_cast<const Operands*>(&kUneven) : &kEven;
}

AnnouncedBuffer LocateBuffer(const Channel& channel, const void* p, uint64_t bytes) {
  if (p == nullptr || bytes == 0) return {0, Reach::kUnused};
  if (uint64_t offset; channel.owner()->InHeap(p, bytes, &offset)) return {offset, Reach::kHeap};
  return {reinterpret_cast<uint64_t>(p), Reach::kPlain};
}

Result<ReachedBuffer> ReachBuffer(const Member& member, const AnnouncedBuffer& announced, uint64_t bytes) {
  const auto [address, reach] = announced;
  if (reach == Reach::kUnused || member.remote != nullptr) return ReachedBuffer();
  if (reach != Reach::kHeap) return ReachedBuffer{reinterpret_cast<std::byte*>(address), !member.same_process};
  const size_t size = member.process->heap_bytes();
  if (address > size || bytes > size - address)
    return MakeStatus(Code::kRemoteError, "rank %d announced a buffer outside its heap", member.rank);
  AXCCL_ASSIGN_OR_RETURN(std::byte* const where, member.process->At(address, bytes));
  return ReachedBuffer{where, false};
}

}  // namespace axccl::exec
