// The files of the report's page, one after the other, as bytes of the program. CMakeLists.txt says where they are.
        .section .rodata
        .global nimble_page_html, nimble_page_css, nimble_page_d3, nimble_page_script, nimble_page_licence, nimble_page_end
        .hidden nimble_page_html, nimble_page_css, nimble_page_d3, nimble_page_script, nimble_page_licence, nimble_page_end
nimble_page_html:
        .incbin "page.html"
nimble_page_css:
        .incbin "page.css"
nimble_page_d3:
        .incbin NIMBLE_D3
nimble_page_script:
        .incbin "data.js"
        .incbin "timeline.js"
        .incbin "explain.js"
        .incbin "graph.js"
        .incbin "tables.js"
        .incbin "memory.js"
        .incbin "main.js"
nimble_page_licence:
        .incbin NIMBLE_D3_LICENCE
nimble_page_end:
        .section .note.GNU-stack, "", %progbits
