// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/lower.h"

#include <algorithm>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

namespace moejit::ir {
namespace {

using compiler::Assignment;
using compiler::Operator;
using llvm::Value;

class Lowering {
 public:
  Lowering(const std::vector<std::string>& variables, Number number, llvm::Module& module)
      : variables_(variables),
        is_float_(number == Number::kFloat),
        module_(module),
        builder_(module.getContext()),
        type_(is_float_ ? builder_.getFloatTy() : builder_.getDoubleTy()) {}

  void run(const compiler::StraightLine& code) {
    llvm::Type* const pointer = llvm::PointerType::get(type_, 0);
    auto* const signature =
        llvm::FunctionType::get(builder_.getVoidTy(), {pointer, pointer}, false);
    auto* const function =
        llvm::Function::Create(signature, llvm::Function::ExternalLinkage, kEntry, module_);
    builder_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function));
    for (const Assignment& assignment : code.assignments)
      values_.push_back(lower(assignment, *function));
    for (size_t i = 0; i < code.results.size(); ++i)
      builder_.CreateStore(values_[static_cast<size_t>(code.results[i])],
                           element(function->getArg(1), i));
    builder_.CreateRetVoid();
  }

 private:
  Value* element(Value* array, size_t index) {
    return builder_.CreateConstGEP1_64(type_, array, index);
  }
  Value* number(double value) { return llvm::ConstantFP::get(type_, value); }

  Value* lower(const Assignment& assignment, llvm::Function& function) {
    if (assignment.op == Operator::kNumber) return number(assignment.number);
    if (assignment.op == Operator::kVariable) {
      const auto place = std::ranges::find(variables_, assignment.name) - variables_.begin();
      return builder_.CreateLoad(type_, element(function.getArg(0), static_cast<size_t>(place)),
                                 assignment.name);
    }
    std::vector<Value*> operands;
    for (const int32_t index : assignment.operands)
      operands.push_back(values_[static_cast<size_t>(index)]);
    return lower(assignment.op, operands);
  }

  Value* lower(Operator op, const std::vector<Value*>& x) {
    switch (op) {
      case Operator::kNegate: return builder_.CreateFNeg(x[0]);
      case Operator::kAdd: return builder_.CreateFAdd(x[0], x[1]);
      case Operator::kSubtract: return builder_.CreateFSub(x[0], x[1]);
      case Operator::kMultiply: return builder_.CreateFMul(x[0], x[1]);
      case Operator::kDivide: return builder_.CreateFDiv(x[0], x[1]);
      case Operator::kFma:
        return builder_.CreateIntrinsic(llvm::Intrinsic::fma, {type_}, {x[0], x[1], x[2]});
      case Operator::kWhereLess:
        return builder_.CreateSelect(builder_.CreateFCmpOLT(x[0], x[1]), x[2], x[3]);
      case Operator::kWhereLessEqual:
        return builder_.CreateSelect(builder_.CreateFCmpOLE(x[0], x[1]), x[2], x[3]);
      case Operator::kMin: return smaller(x[0], x[1], x[0], x[1]);
      case Operator::kMax: return smaller(x[1], x[0], x[0], x[1]);
      case Operator::kRelu: return smaller(number(0.0), x[0], x[0], number(0.0));
      case Operator::kAbs: return intrinsic(llvm::Intrinsic::fabs, x[0]);
      case Operator::kSigmoid: return sigmoid(x[0]);
      case Operator::kExp: return intrinsic(llvm::Intrinsic::exp, x[0]);
      case Operator::kLog: return intrinsic(llvm::Intrinsic::log, x[0]);
      case Operator::kSqrt: return intrinsic(llvm::Intrinsic::sqrt, x[0]);
      case Operator::kTanh: return library_call("tanh", x[0]);
      case Operator::kErf: return library_call("erf", x[0]);
      case Operator::kErfc: return library_call("erfc", x[0]);
      default: return number(0.0);  // straight_line() leaves no others
    }
  }

  // Returns `b` if high < low, else `a`; NaN if `a` or `b` is NaN. (The intrinsics minimum and
  // maximum do not compile for every host in older LLVM.)
  Value* smaller(Value* low, Value* high, Value* a, Value* b) {
    Value* const chosen = builder_.CreateSelect(builder_.CreateFCmpOLT(high, low), b, a);
    return builder_.CreateSelect(builder_.CreateFCmpUNO(a, b), builder_.CreateFAdd(a, b), chosen);
  }

  Value* sigmoid(Value* x) {
    Value* const power = intrinsic(llvm::Intrinsic::exp, builder_.CreateFNeg(x));
    return builder_.CreateFDiv(number(1.0), builder_.CreateFAdd(number(1.0), power));
  }

  Value* intrinsic(llvm::Intrinsic::ID id, Value* x) {
    return builder_.CreateIntrinsic(id, {type_}, {x});
  }

  // Calls a function of the C library, whose float version has an "f" behind its name.
  Value* library_call(std::string name, Value* x) {
    if (is_float_) name += "f";
    return builder_.CreateCall(module_.getOrInsertFunction(name, type_, type_), {x});
  }

  const std::vector<std::string>& variables_;
  bool is_float_;
  llvm::Module& module_;
  llvm::IRBuilder<> builder_;
  llvm::Type* type_;
  std::vector<Value*> values_;
};

}  // namespace

std::unique_ptr<llvm::Module> lower(const compiler::StraightLine& code,
                                    const std::vector<std::string>& variables, Number number,
                                    llvm::LLVMContext& context) {
  auto module = std::make_unique<llvm::Module>(kEntry, context);
  Lowering(variables, number, *module).run(code);
  return module;
}

}  // namespace moejit::ir
