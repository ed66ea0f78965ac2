#include "src/verify/together.h"

#include <string>

#include "src/plan/together.h"
#include "src/verify/describe.h"
#include "src/verify/places.h"

namespace axccl::verify {

using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

class RowChecker {
 public:
  explicit RowChecker(const Schedule& schedule) : s_(schedule), places_(schedule), writer_(places_.size()) {}

  Status Check(int rank, int lane, const std::vector<uint16_t>& together) {
    rank_ = rank;
    lane_ = lane;
    const std::vector<Op>& ops = s_.program[rank][lane].ops;
    std::vector<size_t> row;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::kNop) continue;
      row.push_back(i);
      if (row.size() < together[row[0]]) continue;
      if (row.size() > 1) AXCCL_RETURN_IF_ERROR(CheckRow(ops, row));
      row.clear();
    }
    done_ += ops.size();
    return row.empty() ? Status() : Bad(row[0], row[0], "and there are fewer after it");
  }

 private:
  // Collects what the operations write, then looks for what they read of it.
  Status CheckRow(const std::vector<Op>& ops, const std::vector<size_t>& row) {
    const uint64_t first = done_ + row[0];
    for (const size_t i : row) {
      const Op& op = ops[i];
      if (op.kind != OpKind::kCopy && op.kind != OpKind::kReduce) return Bad(i, row[0], "and synchronises");
      for (const Operand& dst : op.dst) {
        for (int part = 0; part < dst.parts; ++part) {
          uint64_t& writer = writer_[places_.Of(dst) + part];
          if (writer > first) return Bad(i, writer - 1 - done_, "and both write " + Place(dst, part));
          writer = done_ + i + 1;
        }
      }
    }
    for (const size_t i : row) {
      for (const Operand& src : ops[i].src) {
        for (int part = 0; part < src.parts; ++part) {
          const uint64_t writer = writer_[places_.Of(src) + part];
          if (writer <= first || writer == done_ + i + 1) continue;
          return Bad(i, writer - 1 - done_, "which writes " + Place(src, part) + " that it reads" + InPlace(src));
        }
      }
    }
    return Status();
  }

  std::string InPlace(const Operand& src) const {
    return places_.IsAliasedInput(src) ? " where rank " + std::to_string(src.rank) + " runs in place" : std::string();
  }
  Status Bad(size_t op, size_t other, const std::string& what) const {
    return MakeStatus(Code::kInvalidArgument, "together: %s is made at once with %s, %s",
                      Where(s_, rank_, lane_, op).c_str(), Where(s_, rank_, lane_, other).c_str(), what.c_str());
  }

  const Schedule& s_;
  const Places places_;
  int rank_ = 0, lane_ = 0;       // the lane being checked
  uint64_t done_ = 0;             // operations of the lanes checked before
  std::vector<uint64_t> writer_;  // [place]: 1 + the number of the operation that wrote it last, counted over all lanes
};

}  // namespace

Status CheckTogether(const Schedule& schedule, int rank, int lane, const std::vector<uint16_t>& together) {
  return RowChecker(schedule).Check(rank, lane, together);
}

Status CheckTogether(const Schedule& schedule) {
  RowChecker checker(schedule);
  for (int rank = 0; rank < schedule.contract.ranks; ++rank) {
    for (int lane = 0; lane < schedule.lanes; ++lane) {
      const std::vector<uint16_t> together = plan::FindTogether(schedule.program[rank][lane]);
      AXCCL_RETURN_IF_ERROR(checker.Check(rank, lane, together));
    }
  }
  return Status();
}

}  // namespace axccl::verify
