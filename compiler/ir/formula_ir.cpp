// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/formula_ir.h"

#include "compiler/ir/lower.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <mutex>
#include <utility>

namespace moejit::ir {

struct CompiledFormula::Parts {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  void* address = nullptr;
  Number number = Number::kDouble;
  size_t result_count = 0;
  std::string text;
  int64_t operations = 0;
};

namespace {

tl::unexpected<Error> failure(std::string_view what, llvm::Error error) {
  return fail(Stage::kCompile, ErrorCode::kInternal, std::string(what), {},
              llvm::toString(std::move(error)));
}

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

Result<void> verify(const llvm::Module& module) {
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (!llvm::verifyModule(module, &stream)) return {};
  return fail(Stage::kCompile, ErrorCode::kInternal, "the formula's IR does not verify", {},
              stream.str());
}

void optimize(llvm::Module& module) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager call_graph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(call_graph);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, call_graph, modules);
  passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

int64_t count_operations(const llvm::Module& module) {
  int64_t count = 0;
  for (const llvm::Function& function : module)
    for (const llvm::BasicBlock& block : function)
      for (const llvm::Instruction& one : block)
        if (!one.isTerminator() && !llvm::isa<llvm::LoadInst>(one) &&
            !llvm::isa<llvm::StoreInst>(one) && !llvm::isa<llvm::GetElementPtrInst>(one))
          ++count;
  return count;
}

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return stream.str();
}

Result<std::unique_ptr<llvm::orc::LLJIT>> make_jit() {
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) return failure("LLVM cannot make code for this machine", jit.takeError());
  // exp and similar functions come from this process.
  auto library = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
      (*jit)->getDataLayout().getGlobalPrefix());
  if (!library) return failure("LLVM cannot see this process' functions", library.takeError());
  (*jit)->getMainJITDylib().addGenerator(std::move(*library));
  return std::move(*jit);
}

Result<void*> find_entry(llvm::orc::LLJIT& jit) {
  auto symbol = jit.lookup(kEntry);
  if (!symbol) return failure("the formula's IR does not compile", symbol.takeError());
#if LLVM_VERSION_MAJOR >= 15
  return symbol->toPtr<void*>();
#else
  return reinterpret_cast<void*>(symbol->getAddress());
#endif
}

template <typename T>
std::vector<double> call(void* address, std::span<const double> variables, size_t result_count) {
  const std::vector<T> arguments(variables.begin(), variables.end());
  std::vector<T> results(result_count);
  reinterpret_cast<void (*)(const T*, T*)>(address)(arguments.data(), results.data());
  return {results.begin(), results.end()};
}

}  // namespace

CompiledFormula::CompiledFormula(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CompiledFormula::~CompiledFormula() = default;
CompiledFormula::CompiledFormula(CompiledFormula&&) noexcept = default;
CompiledFormula& CompiledFormula::operator=(CompiledFormula&&) noexcept = default;

Result<CompiledFormula> CompiledFormula::compile(const compiler::StraightLine& code,
                                                 std::vector<std::string> variables,
                                                 Number number) {
  initialize_once();
  auto parts = std::make_unique<Parts>();
  parts->number = number;
  parts->result_count = code.results.size();
  MOEJIT_TRY_ASSIGN(parts->jit, make_jit());
  auto context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module = lower(code, variables, number, *context);
  module->setDataLayout(parts->jit->getDataLayout());
  MOEJIT_TRY(verify(*module));
  optimize(*module);
  MOEJIT_TRY(verify(*module));
  parts->text = text_of(*module);
  parts->operations = count_operations(*module);
  if (auto error = parts->jit->addIRModule(
          llvm::orc::ThreadSafeModule(std::move(module), std::move(context))))
    return failure("the formula's IR does not compile", std::move(error));
  MOEJIT_TRY_ASSIGN(parts->address, find_entry(*parts->jit));
  return CompiledFormula(std::move(parts));
}

std::vector<double> CompiledFormula::operator()(std::span<const double> variables) const {
  return parts_->number == Number::kFloat
             ? call<float>(parts_->address, variables, parts_->result_count)
             : call<double>(parts_->address, variables, parts_->result_count);
}

const std::string& CompiledFormula::text() const { return parts_->text; }
int64_t CompiledFormula::operations() const { return parts_->operations; }

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace moejit::ir
