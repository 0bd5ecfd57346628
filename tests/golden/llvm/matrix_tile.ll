define i32 @matrix_tile(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="512" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = alloca [64 x i8], align 64 ; matrix_tile.body0
  %v10 = load ptr, ptr %pool, align 8
  %v7 = getelementptr i8, ptr %v6, i64 0
  store ptr %v1, ptr %v7, align 8
  %v8 = getelementptr i8, ptr %v6, i64 8
  store ptr %v3, ptr %v8, align 8
  %v9 = getelementptr i8, ptr %v6, i64 16
  store ptr %v5, ptr %v9, align 8
  call void %v10(ptr %pool, ptr @matrix_tile.body0, ptr %v6, i64 2)
  ret i32 0
}
define internal void @matrix_tile.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker) nounwind "min-legal-vector-width"="512" "no-builtins" {
entry:
  %v9 = getelementptr i8, ptr %ctx, i64 0
  %v10 = load ptr, ptr %v9, align 8
  %v15 = getelementptr i8, ptr %ctx, i64 8
  %v16 = load ptr, ptr %v15, align 8
  %v25 = alloca [512 x i8], align 64 ; matmul
  %v34 = getelementptr i8, ptr %ctx, i64 16
  %v35 = load ptr, ptr %v34, align 8
  br label %loop1
loop1:
  %i.panel_block.3 = phi i64 [ %begin, %entry ], [ %v41, %done27 ]
  %v11 = mul i64 %i.panel_block.3, 1024
  %v12 = getelementptr i8, ptr %v10, i64 %v11
  %v36 = mul i64 %i.panel_block.3, 512
  %v37 = getelementptr i8, ptr %v35, i64 %v36
  %v4 = call x86_amx @llvm.x86.tilezero.internal(i16 8, i16 64)
  br label %loop5
loop5:
  %acc8 = phi x86_amx [ %v4, %loop1 ], [ %v20, %loop5 ]
  %at13 = phi ptr [ %v12, %loop1 ], [ %v21, %loop5 ]
  %at17 = phi ptr [ %v16, %loop1 ], [ %v22, %loop5 ]
  %i.step.7 = phi i64 [ 0, %loop1 ], [ %v23, %loop5 ]
  %v14 = call x86_amx @llvm.x86.tileloadd64.internal(i16 8, i16 64, ptr %at13, i64 128)
  %v18 = call x86_amx @llvm.x86.tileloadd64.internal(i16 16, i16 64, ptr %at17, i64 64)
  %v19 = call float asm sideeffect "vxorps $0, $0, $0\0A\09vaddss $0, $0, $0", "=x"()
  %v20 = call x86_amx @llvm.x86.tdpbf16ps.internal(i16 8, i16 64, i16 64, x86_amx %acc8, x86_amx %v14, x86_amx %v18)
  %v21 = getelementptr i8, ptr %at13, i64 64
  %v22 = getelementptr i8, ptr %at17, i64 1024
  %v23 = add nuw nsw i64 %i.step.7, 1
  %v24 = icmp slt i64 %v23, 2
  br i1 %v24, label %loop5, label %done6
done6:
  call void @llvm.x86.tilestored64.internal(i16 8, i16 64, ptr %v25, i64 64, x86_amx %v20)
  br label %loop26
loop26:
  %i.in_block.28 = phi i64 [ 0, %done6 ], [ %v39, %loop26 ]
  %v29 = mul i64 %i.in_block.28, 64
  %v30 = getelementptr i8, ptr %v25, i64 %v29
  %v38 = getelementptr i8, ptr %v37, i64 %v29
  %v31 = load <16 x float>, ptr %v30, align 4
  %v32 = fcmp ogt <16 x float> splat (float 0x0000000000000000), %v31
  %v33 = select <16 x i1> %v32, <16 x float> splat (float 0x0000000000000000), <16 x float> %v31
  store <16 x float> %v33, ptr %v38, align 4
  %v39 = add nuw nsw i64 %i.in_block.28, 1
  %v40 = icmp slt i64 %v39, 8
  br i1 %v40, label %loop26, label %done27
done27:
  %v41 = add nuw nsw i64 %i.panel_block.3, 1
  %v42 = icmp slt i64 %v41, %end
  br i1 %v42, label %loop1, label %done2
done2:
  ret void
}
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx)
declare x86_amx @llvm.x86.tdpbf16ps.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx)
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64)
declare x86_amx @llvm.x86.tilezero.internal(i16, i16)
