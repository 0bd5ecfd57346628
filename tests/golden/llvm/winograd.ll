define i32 @winograd(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = alloca [512 x i8], align 64 ; winograd_input
  %v87 = alloca [512 x i8], align 64 ; winograd_product
  %v9 = getelementptr i8, ptr %v1, i64 256
  %v10 = load <8 x float>, ptr %v9, align 4
  %v11 = load <8 x float>, ptr %v1, align 4
  %v12 = fsub contract <8 x float> %v10, %v11
  %v13 = getelementptr i8, ptr %v1, i64 128
  %v14 = load <8 x float>, ptr %v13, align 4
  %v15 = fadd contract <8 x float> %v10, %v14
  %v16 = fsub contract <8 x float> %v10, %v14
  %v17 = getelementptr i8, ptr %v1, i64 384
  %v18 = load <8 x float>, ptr %v17, align 4
  %v19 = fsub contract <8 x float> %v18, %v14
  %v20 = getelementptr i8, ptr %v1, i64 288
  %v21 = load <8 x float>, ptr %v20, align 4
  %v22 = getelementptr i8, ptr %v1, i64 32
  %v23 = load <8 x float>, ptr %v22, align 4
  %v24 = fsub contract <8 x float> %v21, %v23
  %v25 = getelementptr i8, ptr %v1, i64 160
  %v26 = load <8 x float>, ptr %v25, align 4
  %v27 = fadd contract <8 x float> %v21, %v26
  %v28 = fsub contract <8 x float> %v21, %v26
  fence syncscope("singlethread") acq_rel
  %v29 = getelementptr i8, ptr %v1, i64 416
  %v30 = load <8 x float>, ptr %v29, align 4
  %v31 = fsub contract <8 x float> %v30, %v26
  fence syncscope("singlethread") acq_rel
  %v32 = getelementptr i8, ptr %v1, i64 320
  %v33 = load <8 x float>, ptr %v32, align 4
  fence syncscope("singlethread") acq_rel
  %v34 = getelementptr i8, ptr %v1, i64 64
  %v35 = load <8 x float>, ptr %v34, align 4
  %v36 = fsub contract <8 x float> %v33, %v35
  fence syncscope("singlethread") acq_rel
  %v37 = getelementptr i8, ptr %v1, i64 192
  %v38 = load <8 x float>, ptr %v37, align 4
  %v39 = fadd contract <8 x float> %v33, %v38
  %v40 = fsub contract <8 x float> %v33, %v38
  fence syncscope("singlethread") acq_rel
  %v41 = getelementptr i8, ptr %v1, i64 448
  %v42 = load <8 x float>, ptr %v41, align 4
  %v43 = fsub contract <8 x float> %v42, %v38
  fence syncscope("singlethread") acq_rel
  %v44 = getelementptr i8, ptr %v1, i64 352
  %v45 = load <8 x float>, ptr %v44, align 4
  fence syncscope("singlethread") acq_rel
  %v46 = getelementptr i8, ptr %v1, i64 96
  %v47 = load <8 x float>, ptr %v46, align 4
  %v48 = fsub contract <8 x float> %v45, %v47
  fence syncscope("singlethread") acq_rel
  %v49 = getelementptr i8, ptr %v1, i64 224
  %v50 = load <8 x float>, ptr %v49, align 4
  %v51 = fadd contract <8 x float> %v45, %v50
  %v52 = fsub contract <8 x float> %v45, %v50
  fence syncscope("singlethread") acq_rel
  %v53 = getelementptr i8, ptr %v1, i64 480
  %v54 = load <8 x float>, ptr %v53, align 4
  %v55 = fsub contract <8 x float> %v54, %v50
  %v56 = fsub contract <8 x float> %v36, %v12
  store <8 x float> %v56, ptr %v8, align 4
  %v57 = fadd contract <8 x float> %v36, %v24
  %v58 = getelementptr i8, ptr %v8, i64 32
  store <8 x float> %v57, ptr %v58, align 4
  %v59 = fsub contract <8 x float> %v36, %v24
  %v60 = getelementptr i8, ptr %v8, i64 64
  store <8 x float> %v59, ptr %v60, align 4
  %v61 = fsub contract <8 x float> %v48, %v24
  %v62 = getelementptr i8, ptr %v8, i64 96
  store <8 x float> %v61, ptr %v62, align 4
  %v63 = fsub contract <8 x float> %v39, %v15
  %v64 = getelementptr i8, ptr %v8, i64 128
  store <8 x float> %v63, ptr %v64, align 4
  %v65 = fadd contract <8 x float> %v39, %v27
  %v66 = getelementptr i8, ptr %v8, i64 160
  store <8 x float> %v65, ptr %v66, align 4
  %v67 = fsub contract <8 x float> %v39, %v27
  %v68 = getelementptr i8, ptr %v8, i64 192
  store <8 x float> %v67, ptr %v68, align 4
  %v69 = fsub contract <8 x float> %v51, %v27
  %v70 = getelementptr i8, ptr %v8, i64 224
  store <8 x float> %v69, ptr %v70, align 4
  %v71 = fsub contract <8 x float> %v40, %v16
  %v72 = getelementptr i8, ptr %v8, i64 256
  store <8 x float> %v71, ptr %v72, align 4
  %v73 = fadd contract <8 x float> %v40, %v28
  %v74 = getelementptr i8, ptr %v8, i64 288
  store <8 x float> %v73, ptr %v74, align 4
  %v75 = fsub contract <8 x float> %v40, %v28
  %v76 = getelementptr i8, ptr %v8, i64 320
  store <8 x float> %v75, ptr %v76, align 4
  %v77 = fsub contract <8 x float> %v52, %v28
  %v78 = getelementptr i8, ptr %v8, i64 352
  store <8 x float> %v77, ptr %v78, align 4
  %v79 = fsub contract <8 x float> %v43, %v19
  %v80 = getelementptr i8, ptr %v8, i64 384
  store <8 x float> %v79, ptr %v80, align 4
  %v81 = fadd contract <8 x float> %v43, %v31
  %v82 = getelementptr i8, ptr %v8, i64 416
  store <8 x float> %v81, ptr %v82, align 4
  %v83 = fsub contract <8 x float> %v43, %v31
  %v84 = getelementptr i8, ptr %v8, i64 448
  store <8 x float> %v83, ptr %v84, align 4
  %v85 = fsub contract <8 x float> %v55, %v31
  %v86 = getelementptr i8, ptr %v8, i64 480
  store <8 x float> %v85, ptr %v86, align 4
  br label %loop88
loop88:
  %i.winograd_product_i.90 = phi i64 [ 0, %entry ], [ %v121, %done92 ]
  %v98 = mul i64 %i.winograd_product_i.90, 128
  %v99 = getelementptr i8, ptr %v8, i64 %v98
  %v104 = mul i64 %i.winograd_product_i.90, 1024
  %v105 = getelementptr i8, ptr %v3, i64 %v104
  %v117 = getelementptr i8, ptr %v87, i64 %v98
  br label %loop91
loop91:
  %i.winograd_product_j.93 = phi i64 [ 0, %loop88 ], [ %v119, %done95 ]
  %v100 = mul i64 %i.winograd_product_j.93, 32
  %v101 = getelementptr i8, ptr %v99, i64 %v100
  %v106 = mul i64 %i.winograd_product_j.93, 256
  %v107 = getelementptr i8, ptr %v105, i64 %v106
  %v118 = getelementptr i8, ptr %v117, i64 %v100
  br label %loop94
loop94:
  %acc97 = phi <8 x float> [ splat (float 0x0000000000000000), %loop91 ], [ %v112, %loop94 ]
  %at102 = phi ptr [ %v101, %loop91 ], [ %v113, %loop94 ]
  %at108 = phi ptr [ %v107, %loop91 ], [ %v114, %loop94 ]
  %i.winograd_sum_ic.96 = phi i64 [ 0, %loop91 ], [ %v115, %loop94 ]
  %v103 = load float, ptr %at102, align 4
  %v109 = load <8 x float>, ptr %at108, align 4
  %v110 = insertelement <8 x float> poison, float %v103, i64 0
  %v111 = shufflevector <8 x float> %v110, <8 x float> poison, <8 x i32> zeroinitializer
  %v112 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v111, <8 x float> %v109, <8 x float> %acc97)
  %v113 = getelementptr i8, ptr %at102, i64 4
  %v114 = getelementptr i8, ptr %at108, i64 32
  %v115 = add nuw nsw i64 %i.winograd_sum_ic.96, 1
  %v116 = icmp slt i64 %v115, 8
  br i1 %v116, label %loop94, label %done95
done95:
  store <8 x float> %v112, ptr %v118, align 4
  %v119 = add nuw nsw i64 %i.winograd_product_j.93, 1
  %v120 = icmp slt i64 %v119, 4
  br i1 %v120, label %loop91, label %done92
done92:
  %v121 = add nuw nsw i64 %i.winograd_product_i.90, 1
  %v122 = icmp slt i64 %v121, 4
  br i1 %v122, label %loop88, label %done89
done89:
  %v123 = load <8 x float>, ptr %v87, align 4
  %v124 = getelementptr i8, ptr %v87, i64 128
  %v125 = load <8 x float>, ptr %v124, align 4
  %v126 = getelementptr i8, ptr %v87, i64 256
  %v127 = load <8 x float>, ptr %v126, align 4
  %v128 = fadd contract <8 x float> %v125, %v127
  %v129 = fadd contract <8 x float> %v123, %v128
  %v130 = fsub contract <8 x float> %v125, %v127
  %v131 = getelementptr i8, ptr %v87, i64 384
  %v132 = load <8 x float>, ptr %v131, align 4
  %v133 = fadd contract <8 x float> %v130, %v132
  %v134 = getelementptr i8, ptr %v87, i64 32
  %v135 = load <8 x float>, ptr %v134, align 4
  %v136 = getelementptr i8, ptr %v87, i64 160
  %v137 = load <8 x float>, ptr %v136, align 4
  %v138 = getelementptr i8, ptr %v87, i64 288
  %v139 = load <8 x float>, ptr %v138, align 4
  %v140 = fadd contract <8 x float> %v137, %v139
  %v141 = fadd contract <8 x float> %v135, %v140
  %v142 = fsub contract <8 x float> %v137, %v139
  %v143 = getelementptr i8, ptr %v87, i64 416
  %v144 = load <8 x float>, ptr %v143, align 4
  %v145 = fadd contract <8 x float> %v142, %v144
  %v146 = getelementptr i8, ptr %v87, i64 64
  %v147 = load <8 x float>, ptr %v146, align 4
  %v148 = getelementptr i8, ptr %v87, i64 192
  %v149 = load <8 x float>, ptr %v148, align 4
  fence syncscope("singlethread") acq_rel
  %v150 = getelementptr i8, ptr %v87, i64 320
  %v151 = load <8 x float>, ptr %v150, align 4
  %v152 = fadd contract <8 x float> %v149, %v151
  %v153 = fadd contract <8 x float> %v147, %v152
  %v154 = fsub contract <8 x float> %v149, %v151
  fence syncscope("singlethread") acq_rel
  %v155 = getelementptr i8, ptr %v87, i64 448
  %v156 = load <8 x float>, ptr %v155, align 4
  %v157 = fadd contract <8 x float> %v154, %v156
  fence syncscope("singlethread") acq_rel
  %v158 = getelementptr i8, ptr %v87, i64 96
  %v159 = load <8 x float>, ptr %v158, align 4
  fence syncscope("singlethread") acq_rel
  %v160 = getelementptr i8, ptr %v87, i64 224
  %v161 = load <8 x float>, ptr %v160, align 4
  fence syncscope("singlethread") acq_rel
  %v162 = getelementptr i8, ptr %v87, i64 352
  %v163 = load <8 x float>, ptr %v162, align 4
  %v164 = fadd contract <8 x float> %v161, %v163
  %v165 = fadd contract <8 x float> %v159, %v164
  %v166 = fsub contract <8 x float> %v161, %v163
  fence syncscope("singlethread") acq_rel
  %v167 = getelementptr i8, ptr %v87, i64 480
  %v168 = load <8 x float>, ptr %v167, align 4
  %v169 = fadd contract <8 x float> %v166, %v168
  %v170 = fadd contract <8 x float> %v141, %v153
  %v171 = fadd contract <8 x float> %v129, %v170
  fence syncscope("singlethread") acq_rel
  %v172 = load <8 x float>, ptr %v5, align 4
  %v173 = fadd contract <8 x float> %v171, %v172
  store <8 x float> %v173, ptr %v7, align 4
  %v174 = fsub contract <8 x float> %v141, %v153
  %v175 = fadd contract <8 x float> %v174, %v165
  %v176 = fadd contract <8 x float> %v175, %v172
  %v177 = getelementptr i8, ptr %v7, i64 32
  store <8 x float> %v176, ptr %v177, align 4
  %v178 = fadd contract <8 x float> %v145, %v157
  %v179 = fadd contract <8 x float> %v133, %v178
  %v180 = fadd contract <8 x float> %v179, %v172
  %v181 = getelementptr i8, ptr %v7, i64 64
  store <8 x float> %v180, ptr %v181, align 4
  %v182 = fsub contract <8 x float> %v145, %v157
  %v183 = fadd contract <8 x float> %v182, %v169
  %v184 = fadd contract <8 x float> %v183, %v172
  %v185 = getelementptr i8, ptr %v7, i64 96
  store <8 x float> %v184, ptr %v185, align 4
  ret i32 0
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
