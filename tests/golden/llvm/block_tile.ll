define i32 @block_tile(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %args, i64 32
  %v9 = load ptr, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %args, i64 40
  %v11 = load ptr, ptr %v10, align 8
  %v12 = getelementptr i8, ptr %v11, i64 0
  %v49 = alloca [64 x i8], align 64 ; block_tile.body0
  %v56 = load ptr, ptr %pool, align 8
  br label %loop13
loop13:
  %i.block_sum_init_m.15 = phi i64 [ 0, %entry ], [ %v25, %done17 ]
  %v19 = mul i64 %i.block_sum_init_m.15, 8
  %v20 = getelementptr i8, ptr %v12, i64 %v19
  br label %loop16
loop16:
  %i.block_sum_init_b.18 = phi i64 [ 0, %loop13 ], [ %v23, %loop16 ]
  %v21 = mul i64 %i.block_sum_init_b.18, 4
  %v22 = getelementptr i8, ptr %v20, i64 %v21
  store float 0x0000000000000000, ptr %v22, align 4
  %v23 = add nuw nsw i64 %i.block_sum_init_b.18, 1
  %v24 = icmp slt i64 %v23, 2
  br i1 %v24, label %loop16, label %done17
done17:
  %v25 = add nuw nsw i64 %i.block_sum_init_m.15, 1
  %v26 = icmp slt i64 %v25, 3
  br i1 %v26, label %loop13, label %done14
done14:
  br label %loop27
loop27:
  %i.block_sum_m.29 = phi i64 [ 0, %done14 ], [ %v47, %done31 ]
  %v33 = mul i64 %i.block_sum_m.29, 64
  %v34 = getelementptr i8, ptr %v1, i64 %v33
  %v39 = mul i64 %i.block_sum_m.29, 8
  %v40 = getelementptr i8, ptr %v12, i64 %v39
  br label %loop30
loop30:
  %i.block_sum_b.32 = phi i64 [ 0, %loop27 ], [ %v45, %loop30 ]
  %v35 = mul i64 %i.block_sum_b.32, 32
  %v36 = getelementptr i8, ptr %v34, i64 %v35
  %v41 = mul i64 %i.block_sum_b.32, 4
  %v42 = getelementptr i8, ptr %v40, i64 %v41
  %v37 = load <8 x float>, ptr %v36, align 4
  %v38 = call reassoc float @llvm.vector.reduce.fadd.v8f32(float 0x8000000000000000, <8 x float> %v37)
  %v43 = load float, ptr %v42, align 4
  %v44 = fadd contract float %v43, %v38
  store float %v44, ptr %v42, align 4
  %v45 = add nuw nsw i64 %i.block_sum_b.32, 1
  %v46 = icmp slt i64 %v45, 2
  br i1 %v46, label %loop30, label %done31
done31:
  %v47 = add nuw nsw i64 %i.block_sum_m.29, 1
  %v48 = icmp slt i64 %v47, 3
  br i1 %v48, label %loop27, label %done28
done28:
  %v50 = getelementptr i8, ptr %v49, i64 0
  store ptr %v3, ptr %v50, align 8
  %v51 = getelementptr i8, ptr %v49, i64 8
  store ptr %v1, ptr %v51, align 8
  %v52 = getelementptr i8, ptr %v49, i64 16
  store ptr %v12, ptr %v52, align 8
  %v53 = getelementptr i8, ptr %v49, i64 24
  store ptr %v7, ptr %v53, align 8
  %v54 = getelementptr i8, ptr %v49, i64 32
  store ptr %v5, ptr %v54, align 8
  %v55 = getelementptr i8, ptr %v49, i64 40
  store ptr %v9, ptr %v55, align 8
  call void %v56(ptr %pool, ptr @block_tile.body0, ptr %v49, i64 2)
  ret i32 0
}
define internal void @block_tile.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v18 = getelementptr i8, ptr %ctx, i64 0
  %v19 = load ptr, ptr %v18, align 8
  %v27 = getelementptr i8, ptr %ctx, i64 8
  %v28 = load ptr, ptr %v27, align 8
  %v88 = getelementptr i8, ptr %ctx, i64 16
  %v89 = load ptr, ptr %v88, align 8
  %v92 = getelementptr i8, ptr %ctx, i64 24
  %v93 = load ptr, ptr %v92, align 8
  %v110 = getelementptr i8, ptr %ctx, i64 32
  %v111 = load ptr, ptr %v110, align 8
  %v130 = getelementptr i8, ptr %ctx, i64 40
  %v131 = load ptr, ptr %v130, align 8
  br label %loop1
loop1:
  %i.panel_row.3 = phi i64 [ %begin, %entry ], [ %v221, %after6 ]
  %v4 = icmp slt i64 %i.panel_row.3, 1
  br i1 %v4, label %then5, label %else7
then5:
  br label %loop8
loop8:
  %acc11 = phi <8 x float> [ splat (float 0x0000000000000000), %then5 ], [ %v114, %done14 ]
  %acc12 = phi <8 x float> [ splat (float 0x0000000000000000), %then5 ], [ %v121, %done14 ]
  %at20 = phi ptr [ %v19, %then5 ], [ %v122, %done14 ]
  %at29 = phi ptr [ %v28, %then5 ], [ %v123, %done14 ]
  %at90 = phi ptr [ %v89, %then5 ], [ %v124, %done14 ]
  %at112 = phi ptr [ %v111, %then5 ], [ %v125, %done14 ]
  %i.block_matmul_b.10 = phi i64 [ 0, %then5 ], [ %v126, %done14 ]
  %v95 = mul i64 %i.block_matmul_b.10, 4
  br label %loop13
loop13:
  %acc16 = phi <8 x float> [ splat (float 0x0000000000000000), %loop8 ], [ %v78, %loop13 ]
  %acc17 = phi <8 x float> [ splat (float 0x0000000000000000), %loop8 ], [ %v83, %loop13 ]
  %at21 = phi ptr [ %at20, %loop8 ], [ %v84, %loop13 ]
  %at30 = phi ptr [ %at29, %loop8 ], [ %v85, %loop13 ]
  %i.block_part_i_i_o.15 = phi i64 [ 0, %loop8 ], [ %v86, %loop13 ]
  %v22 = load <8 x i8>, ptr %at21, align 1
  %v23 = lshr <8 x i8> %v22, splat (i8 0)
  %v24 = and <8 x i8> %v23, splat (i8 15)
  %v25 = and <8 x i8> %v24, splat (i8 15)
  %v26 = uitofp <8 x i8> %v25 to <8 x float>
  %v31 = load float, ptr %at30, align 4
  %v32 = insertelement <8 x float> poison, float %v31, i64 0
  %v33 = shufflevector <8 x float> %v32, <8 x float> poison, <8 x i32> zeroinitializer
  %v34 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v26, <8 x float> %v33, <8 x float> %acc16)
  %v35 = getelementptr i8, ptr %at30, i64 64
  %v36 = load float, ptr %v35, align 4
  %v37 = insertelement <8 x float> poison, float %v36, i64 0
  %v38 = shufflevector <8 x float> %v37, <8 x float> poison, <8 x i32> zeroinitializer
  %v39 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v26, <8 x float> %v38, <8 x float> %acc17)
  %v40 = lshr <8 x i8> %v22, splat (i8 4)
  %v41 = and <8 x i8> %v40, splat (i8 15)
  %v42 = and <8 x i8> %v41, splat (i8 15)
  %v43 = uitofp <8 x i8> %v42 to <8 x float>
  %v44 = getelementptr i8, ptr %at30, i64 16
  %v45 = load float, ptr %v44, align 4
  %v46 = insertelement <8 x float> poison, float %v45, i64 0
  %v47 = shufflevector <8 x float> %v46, <8 x float> poison, <8 x i32> zeroinitializer
  %v48 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> %v47, <8 x float> %v34)
  %v49 = getelementptr i8, ptr %at30, i64 80
  %v50 = load float, ptr %v49, align 4
  %v51 = insertelement <8 x float> poison, float %v50, i64 0
  %v52 = shufflevector <8 x float> %v51, <8 x float> poison, <8 x i32> zeroinitializer
  %v53 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v43, <8 x float> %v52, <8 x float> %v39)
  %v54 = getelementptr i8, ptr %at21, i64 8
  %v55 = load <8 x i8>, ptr %v54, align 1
  %v56 = lshr <8 x i8> %v55, splat (i8 0)
  %v57 = and <8 x i8> %v56, splat (i8 15)
  %v58 = and <8 x i8> %v57, splat (i8 15)
  %v59 = uitofp <8 x i8> %v58 to <8 x float>
  %v60 = getelementptr i8, ptr %at30, i64 4
  %v61 = load float, ptr %v60, align 4
  %v62 = insertelement <8 x float> poison, float %v61, i64 0
  %v63 = shufflevector <8 x float> %v62, <8 x float> poison, <8 x i32> zeroinitializer
  %v64 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v59, <8 x float> %v63, <8 x float> %v48)
  %v65 = getelementptr i8, ptr %at30, i64 68
  %v66 = load float, ptr %v65, align 4
  %v67 = insertelement <8 x float> poison, float %v66, i64 0
  %v68 = shufflevector <8 x float> %v67, <8 x float> poison, <8 x i32> zeroinitializer
  %v69 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v59, <8 x float> %v68, <8 x float> %v53)
  %v70 = lshr <8 x i8> %v55, splat (i8 4)
  %v71 = and <8 x i8> %v70, splat (i8 15)
  %v72 = and <8 x i8> %v71, splat (i8 15)
  %v73 = uitofp <8 x i8> %v72 to <8 x float>
  %v74 = getelementptr i8, ptr %at30, i64 20
  %v75 = load float, ptr %v74, align 4
  %v76 = insertelement <8 x float> poison, float %v75, i64 0
  %v77 = shufflevector <8 x float> %v76, <8 x float> poison, <8 x i32> zeroinitializer
  %v78 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v73, <8 x float> %v77, <8 x float> %v64)
  %v79 = getelementptr i8, ptr %at30, i64 84
  %v80 = load float, ptr %v79, align 4
  %v81 = insertelement <8 x float> poison, float %v80, i64 0
  %v82 = shufflevector <8 x float> %v81, <8 x float> poison, <8 x i32> zeroinitializer
  %v83 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v73, <8 x float> %v82, <8 x float> %v69)
  %v84 = getelementptr i8, ptr %at21, i64 16
  %v85 = getelementptr i8, ptr %at30, i64 8
  %v86 = add nuw nsw i64 %i.block_part_i_i_o.15, 1
  %v87 = icmp slt i64 %v86, 2
  br i1 %v87, label %loop13, label %done14
done14:
  %v91 = load float, ptr %at90, align 4
  %v94 = load <8 x i8>, ptr %v93, align 1
  %v96 = trunc i64 %v95 to i8
  %v97 = insertelement <8 x i8> poison, i8 %v96, i64 0
  %v98 = shufflevector <8 x i8> %v97, <8 x i8> poison, <8 x i32> zeroinitializer
  %v99 = icmp ugt <8 x i8> %v98, splat (i8 7)
  %v100 = select <8 x i1> %v99, <8 x i8> splat (i8 7), <8 x i8> %v98
  %v101 = lshr <8 x i8> %v94, %v100
  %v102 = select <8 x i1> %v99, <8 x i8> splat (i8 0), <8 x i8> %v101
  %v103 = and <8 x i8> %v102, splat (i8 15)
  %v104 = and <8 x i8> %v103, splat (i8 15)
  %v105 = uitofp <8 x i8> %v104 to <8 x float>
  %v106 = fneg float %v91
  %v107 = insertelement <8 x float> poison, float %v106, i64 0
  %v108 = shufflevector <8 x float> %v107, <8 x float> poison, <8 x i32> zeroinitializer
  %v109 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v108, <8 x float> %v105, <8 x float> %v78)
  %v113 = load <8 x float>, ptr %at112, align 4
  %v114 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v109, <8 x float> %v113, <8 x float> %acc11)
  %v115 = getelementptr i8, ptr %at90, i64 8
  %v116 = load float, ptr %v115, align 4
  %v117 = fneg float %v116
  %v118 = insertelement <8 x float> poison, float %v117, i64 0
  %v119 = shufflevector <8 x float> %v118, <8 x float> poison, <8 x i32> zeroinitializer
  %v120 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v119, <8 x float> %v105, <8 x float> %v83)
  %v121 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v120, <8 x float> %v113, <8 x float> %acc12)
  %v122 = getelementptr i8, ptr %at20, i64 32
  %v123 = getelementptr i8, ptr %at29, i64 32
  %v124 = getelementptr i8, ptr %at90, i64 4
  %v125 = getelementptr i8, ptr %at112, i64 32
  %v126 = add nuw nsw i64 %i.block_matmul_b.10, 1
  %v127 = icmp slt i64 %v126, 2
  br i1 %v127, label %loop8, label %done9
done9:
  %v128 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v114
  %v129 = select <8 x i1> %v128, <8 x float> splat (float 0x0000000000000000), <8 x float> %v114
  store <8 x float> %v129, ptr %v131, align 4
  %v132 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v121
  %v133 = select <8 x i1> %v132, <8 x float> splat (float 0x0000000000000000), <8 x float> %v121
  %v134 = getelementptr i8, ptr %v131, i64 32
  store <8 x float> %v133, ptr %v134, align 4
  br label %after6
else7:
  br label %loop135
loop135:
  %acc138 = phi <8 x float> [ splat (float 0x0000000000000000), %else7 ], [ %v211, %done140 ]
  %at143 = phi ptr [ %v19, %else7 ], [ %v212, %done140 ]
  %at150 = phi ptr [ %v28, %else7 ], [ %v213, %done140 ]
  %at190 = phi ptr [ %v89, %else7 ], [ %v214, %done140 ]
  %at209 = phi ptr [ %v111, %else7 ], [ %v215, %done140 ]
  %i.block_matmul_b_tail.137 = phi i64 [ 0, %else7 ], [ %v216, %done140 ]
  %v194 = mul i64 %i.block_matmul_b_tail.137, 4
  br label %loop139
loop139:
  %acc142 = phi <8 x float> [ splat (float 0x0000000000000000), %loop135 ], [ %v185, %loop139 ]
  %at144 = phi ptr [ %at143, %loop135 ], [ %v186, %loop139 ]
  %at151 = phi ptr [ %at150, %loop135 ], [ %v187, %loop139 ]
  %i.block_part_i_i_o_tail.141 = phi i64 [ 0, %loop135 ], [ %v188, %loop139 ]
  %v145 = load <8 x i8>, ptr %at144, align 1
  %v146 = lshr <8 x i8> %v145, splat (i8 0)
  %v147 = and <8 x i8> %v146, splat (i8 15)
  %v148 = and <8 x i8> %v147, splat (i8 15)
  %v149 = uitofp <8 x i8> %v148 to <8 x float>
  %v152 = getelementptr i8, ptr %at151, i64 128
  %v153 = load float, ptr %v152, align 4
  %v154 = insertelement <8 x float> poison, float %v153, i64 0
  %v155 = shufflevector <8 x float> %v154, <8 x float> poison, <8 x i32> zeroinitializer
  %v156 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v149, <8 x float> %v155, <8 x float> %acc142)
  %v157 = lshr <8 x i8> %v145, splat (i8 4)
  %v158 = and <8 x i8> %v157, splat (i8 15)
  %v159 = and <8 x i8> %v158, splat (i8 15)
  %v160 = uitofp <8 x i8> %v159 to <8 x float>
  %v161 = getelementptr i8, ptr %at151, i64 144
  %v162 = load float, ptr %v161, align 4
  %v163 = insertelement <8 x float> poison, float %v162, i64 0
  %v164 = shufflevector <8 x float> %v163, <8 x float> poison, <8 x i32> zeroinitializer
  %v165 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v160, <8 x float> %v164, <8 x float> %v156)
  %v166 = getelementptr i8, ptr %at144, i64 8
  %v167 = load <8 x i8>, ptr %v166, align 1
  %v168 = lshr <8 x i8> %v167, splat (i8 0)
  %v169 = and <8 x i8> %v168, splat (i8 15)
  %v170 = and <8 x i8> %v169, splat (i8 15)
  %v171 = uitofp <8 x i8> %v170 to <8 x float>
  %v172 = getelementptr i8, ptr %at151, i64 132
  %v173 = load float, ptr %v172, align 4
  %v174 = insertelement <8 x float> poison, float %v173, i64 0
  %v175 = shufflevector <8 x float> %v174, <8 x float> poison, <8 x i32> zeroinitializer
  %v176 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v171, <8 x float> %v175, <8 x float> %v165)
  %v177 = lshr <8 x i8> %v167, splat (i8 4)
  %v178 = and <8 x i8> %v177, splat (i8 15)
  %v179 = and <8 x i8> %v178, splat (i8 15)
  %v180 = uitofp <8 x i8> %v179 to <8 x float>
  %v181 = getelementptr i8, ptr %at151, i64 148
  %v182 = load float, ptr %v181, align 4
  %v183 = insertelement <8 x float> poison, float %v182, i64 0
  %v184 = shufflevector <8 x float> %v183, <8 x float> poison, <8 x i32> zeroinitializer
  %v185 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v180, <8 x float> %v184, <8 x float> %v176)
  %v186 = getelementptr i8, ptr %at144, i64 16
  %v187 = getelementptr i8, ptr %at151, i64 8
  %v188 = add nuw nsw i64 %i.block_part_i_i_o_tail.141, 1
  %v189 = icmp slt i64 %v188, 2
  br i1 %v189, label %loop139, label %done140
done140:
  %v191 = getelementptr i8, ptr %at190, i64 16
  %v192 = load float, ptr %v191, align 4
  %v193 = load <8 x i8>, ptr %v93, align 1
  %v195 = trunc i64 %v194 to i8
  %v196 = insertelement <8 x i8> poison, i8 %v195, i64 0
  %v197 = shufflevector <8 x i8> %v196, <8 x i8> poison, <8 x i32> zeroinitializer
  %v198 = icmp ugt <8 x i8> %v197, splat (i8 7)
  %v199 = select <8 x i1> %v198, <8 x i8> splat (i8 7), <8 x i8> %v197
  %v200 = lshr <8 x i8> %v193, %v199
  %v201 = select <8 x i1> %v198, <8 x i8> splat (i8 0), <8 x i8> %v200
  %v202 = and <8 x i8> %v201, splat (i8 15)
  %v203 = and <8 x i8> %v202, splat (i8 15)
  %v204 = uitofp <8 x i8> %v203 to <8 x float>
  %v205 = fneg float %v192
  %v206 = insertelement <8 x float> poison, float %v205, i64 0
  %v207 = shufflevector <8 x float> %v206, <8 x float> poison, <8 x i32> zeroinitializer
  %v208 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v207, <8 x float> %v204, <8 x float> %v185)
  %v210 = load <8 x float>, ptr %at209, align 4
  %v211 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v208, <8 x float> %v210, <8 x float> %acc138)
  %v212 = getelementptr i8, ptr %at143, i64 32
  %v213 = getelementptr i8, ptr %at150, i64 32
  %v214 = getelementptr i8, ptr %at190, i64 4
  %v215 = getelementptr i8, ptr %at209, i64 32
  %v216 = add nuw nsw i64 %i.block_matmul_b_tail.137, 1
  %v217 = icmp slt i64 %v216, 2
  br i1 %v217, label %loop135, label %done136
done136:
  %v218 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v211
  %v219 = select <8 x i1> %v218, <8 x float> splat (float 0x0000000000000000), <8 x float> %v211
  %v220 = getelementptr i8, ptr %v131, i64 64
  store <8 x float> %v219, ptr %v220, align 4
  br label %after6
after6:
  %v221 = add nuw nsw i64 %i.panel_row.3, 1
  %v222 = icmp slt i64 %v221, %end
  br i1 %v222, label %loop1, label %done2
done2:
  ret void
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
declare float @llvm.vector.reduce.fadd.v8f32(float, <8 x float>)
